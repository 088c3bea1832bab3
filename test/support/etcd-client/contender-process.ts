/** etcd's own Go client as a process that contends for locks: contender.go, compiled once, into a temporary folder. */

import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, mkdtempSync, readFileSync, renameSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import type { ContenderProcess } from "../curator/contender-process.ts";
import { startContender } from "../curator/contender-process.ts";
import { assertOutsideOfTests } from "../outside-of-tests.ts";
import type { EtcdServer } from "../stores/etcd.ts";

const FOLDER = resolve("test/support/etcd-client");
/** On a machine that has never compiled its modules. */
const BUILD_MS = 300_000;

export type EtcdContenderOptions = {
  readonly server: EtcdServer;
  /** Of the lease that each contender has. */
  readonly ttlSeconds: number;
  /** See test/support/curator/exclusion-register.ts; 0: none. */
  readonly registerPort?: number;
};

/** Contenders that use the Mutex and the Election of etcd's package "concurrency". */
export function startEtcdContender(options: EtcdContenderOptions): Promise<ContenderProcess> {
  const { server, ttlSeconds, registerPort = 0 } = options;
  return startContender([programPath(), server.url, String(ttlSeconds), String(registerPort)]);
}

/** Why the program is not here; null if it is. */
export function etcdContenderUnavailableReason(): string | null {
  return existsSync(programPath()) ? null : "etcd's Go client could not be compiled here";
}

/** Compiles the program, unless it is there. Where there is no Go, or not its modules, it prints why and leaves it. */
export function compileEtcdContender(): void {
  const program = programPath();
  if (existsSync(program)) return;
  assertOutsideOfTests("etcd's Go client");
  console.log("compiling etcd's Go client for the etcd tests");
  const folder = mkdtempSync(join(tmpdir(), "holdfast-go-"));
  const output = join(folder, "contender");
  const { status, stderr, error } = spawnSync("go", ["build", "-o", output, "."], {
    cwd: FOLDER,
    encoding: "utf8",
    timeout: BUILD_MS,
  });
  // another run may have been faster: then its program is replaced by the same one
  if (status === 0) renameSync(output, program);
  else console.log(`etcd's Go client is not compiled, and its tests are skipped: ${error?.message ?? stderr}`);
  rmSync(folder, { recursive: true });
}

function programPath(): string {
  const hash = createHash("sha256");
  for (const name of ["contender.go", "go.sum"]) hash.update(readFileSync(join(FOLDER, name)));
  return join(tmpdir(), `holdfast-etcd-client-${process.getuid?.() ?? ""}-${hash.digest("hex").slice(0, 16)}`);
}
