#!/usr/bin/env node
// Runs the program of the package for this platform, and ends as it ends.
"use strict";

const { spawn } = require("node:child_process");
const { accessSync, constants, readFileSync } = require("node:fs");

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

// A terminal sends INT and HUP to each process of the group in its foreground, also if tools have put pipes between it and the processes.
function hasTerminal() {
  try {
    const stat = readFileSync("/proc/self/stat", "utf8");
    // The name of the process, in parentheses, may have spaces.
    const [, , group, , terminal, foreground] = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
    return terminal !== "0" && group === foreground;
  } catch {
    return false;
  }
}

const path = program();
const args = process.argv.slice(2);

// Node 22.15 and newer: the program takes the place of this process, so that every signal, also KILL, reaches the program, and reaches it once.
function become() {
  try {
    accessSync(path, constants.X_OK);
  } catch (error) {
    // After a failed execve, Node aborts.
    fail(`the program can't be started: ${error.message}`);
  }
  process.execve(path, [path, ...args], process.env);
}

// Older Node: the program is a child.
function beside() {
  const child = spawn(path, args, { stdio: "inherit" });
  child.on("error", (error) => fail(`the program can't be started: ${error.message}`));
  for (const signal of ["SIGTERM", "SIGINT", "SIGHUP"]) {
    process.on(signal, () => {
      // The program must get each signal only once, because a second one stops it at once.
      if (signal === "SIGTERM" || !hasTerminal()) child.kill(signal);
    });
  }
  child.on("exit", (code, signal) => {
    if (signal === null) process.exit(code);
    process.removeAllListeners(signal);
    process.kill(process.pid, signal);
  });
}

if (typeof process.execve === "function") become();
else beside();
