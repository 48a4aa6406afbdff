/** A deltaq server for a check. `DELTAQ_BIN` names the binary. */

import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";

/** A running server with these settings (`DELTAQ_...`). */
export async function startServer(settings = {}) {
    const folder = mkdtempSync(join(tmpdir(), "deltaq-check-"));
    const ready = join(folder, "ready");
    const options = ["--listen", "127.0.0.1:0", "--metrics-listen", "", "--data-dir", join(folder, "data"), "--ready-file", ready, "--log-level", "error"];
    const child = spawn(process.env.DELTAQ_BIN, ["serve", ...options], { stdio: ["ignore", "ignore", "inherit"], env: { ...process.env, ...settings } });
    while (!existsSync(ready)) {
        if (child.exitCode !== null) {
            throw new Error("the server did not start");
        }
        await sleep(20);
    }
    return {
        url: `http://${JSON.parse(readFileSync(ready, "utf8")).api}`,
        async stop() {
            child.kill();
            await once(child, "exit");
            rmSync(folder, { recursive: true });
        },
    };
}
