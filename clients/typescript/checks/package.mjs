/**
 * Packs the package, installs it into an empty project, and compiles and runs the examples of README.md there, in their order, against a server.
 * Usage: DELTAQ_BIN=... node checks/package.mjs
 */

import { execFileSync, spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

import { startServer } from "./server.mjs";

const PATIENCE_MS = 30_000;

const here = dirname(dirname(fileURLToPath(import.meta.url)));
const project = mkdtempSync(join(tmpdir(), "deltaq-package-"));
const run = (command, args, cwd = project) => execFileSync(command, args, { cwd, encoding: "utf8", stdio: ["ignore", "pipe", "inherit"] });

/** The examples: each `ts` block with the `text` block behind it. Every other block must be a command or an output. */
function examples(markdown) {
    const others = [...markdown.matchAll(/^```(?!sh$|ts$|text$|$)(.*)$/gm)].map(([, language]) => language);
    const text = markdown.replaceAll(/^```.*?^```$/gms, "");
    if (others.length > 0 || /^    \S/m.test(text)) {
        throw new Error(`README.md has blocks that are not compiled: ${others.join(", ") || "an indented one"}`);
    }
    return [...markdown.matchAll(/```ts\n(.*?)```\n(?:\n```text\n(.*?)```)?/gs)].map(([, code, output = ""]) => ({ code, output, isTest: code.includes("node:test") }));
}

/** Compiles with the settings of a new project of a user, which `tsc --init` writes, and with those that it suggests. */
function compile(options) {
    const tsc = join(here, "node_modules/.bin/tsc");
    rmSync(join(project, "tsconfig.json"), { force: true });
    run(tsc, ["--init"]);
    const init = readFileSync(join(project, "tsconfig.json"), "utf8");
    for (const option of ["strict", "exactOptionalPropertyTypes", "noUncheckedIndexedAccess", "verbatimModuleSyntax"]) {
        if (!new RegExp(`^ *"${option}": true,$`, "m").test(init)) {
            throw new Error(`tsc --init does not set ${option} any more:\n${init}`);
        }
    }
    const suggested = [...init.matchAll(/^ *\/\/ "(no\w+)": true,$/gm)].map(([, option]) => [option, true]);
    if (!suggested.some(([option]) => option === "noImplicitReturns")) {
        throw new Error(`tsc --init does not suggest noImplicitReturns any more:\n${init}`);
    }
    const compilerOptions = { ...Object.fromEntries(suggested), target: "es2022", rootDir: ".", outDir: "out", skipLibCheck: false, ...options };
    writeFileSync(join(project, "tsconfig.check.json"), JSON.stringify({ extends: "./tsconfig.json", compilerOptions, include: ["*.ts"] }));
    run(tsc, ["--project", "tsconfig.check.json"]);
}

/** Runs an example until its output is complete. One that goes on then gets a SIGTERM. */
async function check(name, { output: expected, isTest }) {
    if (isTest) {
        // As in a project that has installed deltaq-server, whose program is found without DELTAQ_BIN.
        const { DELTAQ_BIN, ...env } = process.env;
        execFileSync(process.execPath, ["--test", join("out", name)], { cwd: project, env, stdio: ["ignore", "ignore", "inherit"] });
        return;
    }
    const child = spawn(process.execPath, [join("out", name)], { cwd: project, stdio: ["ignore", "pipe", "inherit"] });
    const timer = setTimeout(() => child.kill("SIGKILL"), PATIENCE_MS);
    let output = "";
    child.stdout.on("data", data => {
        output += data;
        if (output.length >= expected.length) {
            child.kill("SIGTERM");
        }
    });
    const [code, signal] = await new Promise(resolve => child.once("close", (...end) => resolve(end)));
    clearTimeout(timer);
    // An example without a handler of SIGTERM may end by it after its last line.
    if (output !== expected || (code !== 0 && signal !== "SIGTERM")) {
        throw new Error(`${name} has ended with ${code ?? signal} and printed:\n${output}instead of:\n${expected}`);
    }
}

const server = await startServer();
try {
    const [{ filename, files }] = JSON.parse(run("npm", ["pack", "--json", "--ignore-scripts", "--pack-destination", project], here));
    const others = files.map(file => file.path).filter(path => !/^(dist\/.*\.(js|d\.ts)|package\.json|README\.md)$/.test(path));
    if (others.length > 0) {
        throw new Error(`the package has files that it should not have: ${others.join(", ")}`);
    }
    writeFileSync(join(project, "package.json"), JSON.stringify({ name: "empty", private: true, type: "module" }));
    run("npm", ["install", "--offline", "--no-audit", "--no-fund", `./${filename}`]);

    // A page or another runtime has no types of Node.
    writeFileSync(join(project, "page.ts"), 'import { Client, Informer } from "deltaq";\nexport const informer = new Informer(new Client("http://localhost").queue("q"));\n');
    compile({ types: [], lib: ["es2022", "dom"] });
    // A project that has the optional package.
    mkdirSync(join(project, "node_modules/@opentelemetry"));
    symlinkSync(join(here, "node_modules/@opentelemetry/api"), join(project, "node_modules/@opentelemetry/api"));
    const found = examples(readFileSync(join(here, "README.md"), "utf8"));
    if (found.length < 5) {
        throw new Error(`README.md has only ${found.length} examples`);
    }
    const platform = join(project, `node_modules/@deltaq/${process.platform}-${process.arch}`);
    mkdirSync(platform, { recursive: true });
    symlinkSync(process.env.DELTAQ_BIN, join(platform, "deltaq"));
    found.forEach(({ code }, index) => writeFileSync(join(project, `example${index}.ts`), code.replaceAll("http://localhost:7070", server.url)));
    compile({ types: ["node"], typeRoots: [join(here, "node_modules/@types")], lib: ["es2022"] });
    for (const [index, example] of found.entries()) {
        await check(`example${index}.js`, example);
    }
    console.log(`${filename}: installed, and ${found.length} examples of README.md run`);
} finally {
    await server.stop();
    rmSync(project, { recursive: true });
}
