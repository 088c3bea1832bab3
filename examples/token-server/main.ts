// A token lock server: `lock()` gives a token, and any request of any process that has the reference may unlock. First
// its speed, as such servers are measured: 8 processes, each 1,000 times lock and unlock, all on one lock. Then its rules.

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { serve } from "holdfast/server";
import { runLockLoop } from "./lock-loop.ts";
import { showSemantics } from "./semantics.ts";

const folder = mkdtempSync(join(tmpdir(), "token-server-"));
const server = await serve({ listen: "holdfast://127.0.0.1:0", state: join(folder, "state") });
const url = server.addresses[0] ?? "";
try {
  await runLockLoop(url, { processes: 8, times: 1_000, grants: join(folder, "grants") });
  await showSemantics(url);
} finally {
  await server.close();
  rmSync(folder, { recursive: true });
}
