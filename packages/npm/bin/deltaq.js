#!/usr/bin/env node
// Runs the program of the package for this platform, and ends as it ends.
"use strict";

const { spawn } = require("node:child_process");

const platform = `@deltaq/${process.platform}-${process.arch}`;

function fail(message) {
  process.stderr.write(`deltaq: ${message}\n`);
  process.exit(1);
}

function program() {
  try {
    return require.resolve(`${platform}/deltaq`);
  } catch {
    return fail(
      `the package ${platform}, which has the program, is not installed: install deltaq-server again on this machine, without --omit=optional; ` +
        "where no such package exists, build deltaq from source",
    );
  }
}

const child = spawn(program(), process.argv.slice(2), { stdio: "inherit" });
child.on("error", (error) => fail(`the program can't be started: ${error.message}`));

// A terminal sends INT and HUP to both processes. The program must get each only once, because a second one stops it at once.
const hasTerminal = process.stdin.isTTY || process.stderr.isTTY;
for (const signal of ["SIGTERM", "SIGINT", "SIGHUP"]) {
  process.on(signal, () => {
    if (signal === "SIGTERM" || !hasTerminal) child.kill(signal);
  });
}

child.on("exit", (code, signal) => {
  if (signal === null) process.exit(code);
  process.removeAllListeners(signal);
  process.kill(process.pid, signal);
});
