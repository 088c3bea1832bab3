/** A real Versity gateway for tests: objects in files, over the protocol of S3. Compiled once, into a temporary folder. */

import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, renameSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { assertOutsideOfTests } from "../outside-of-tests.ts";
import { AWS_ENVIRONMENT } from "./document-stores.ts";
import type { HttpService } from "./http-service.ts";
import { startHttpService } from "./http-service.ts";

const VERSION = "v1.8.0";
const PROGRAM = join(tmpdir(), `holdfast-versitygw-${process.getuid?.() ?? ""}-${VERSION}`);
/** On a machine that has never compiled its modules. */
const BUILD_MS = 300_000;

/** Other requests than those with the credentials of AWS_ENVIRONMENT are refused. */
export function startVersityGateway(): Promise<HttpService> {
  return startHttpService({
    name: "the Versity gateway",
    command(port, folder) {
      const data = join(folder, "data");
      mkdirSync(data, { recursive: true });
      const settings = ["--port", `127.0.0.1:${port}`, "--region", AWS_ENVIRONMENT.AWS_REGION];
      return [PROGRAM, ...settings, "--keep-alive", "--quiet", "posix", data];
    },
    environment: {
      ROOT_ACCESS_KEY: AWS_ENVIRONMENT.AWS_ACCESS_KEY_ID,
      ROOT_SECRET_KEY: AWS_ENVIRONMENT.AWS_SECRET_ACCESS_KEY,
    },
    faults: /panic/g,
  });
}

export function hasVersityGateway(): boolean {
  return existsSync(PROGRAM);
}

/** Compiles the program, unless it is there. Where there is no Go, or not its modules, it prints why and leaves it. */
export function compileVersityGateway(): void {
  if (hasVersityGateway()) return;
  assertOutsideOfTests("the Versity gateway");
  console.log("compiling the Versity gateway for the tests of S3: a minute");
  const folder = mkdtempSync(join(tmpdir(), "holdfast-go-"));
  const module = `github.com/versity/versitygw/cmd/versitygw@${VERSION}`;
  const { status, stderr, error } = spawnSync("go", ["install", module], {
    env: { ...process.env, GOBIN: folder },
    encoding: "utf8",
    timeout: BUILD_MS,
  });
  // another run may have been faster: then its program is replaced by the same one
  if (status === 0) renameSync(join(folder, "versitygw"), PROGRAM);
  else console.log(`the Versity gateway is not compiled, and S3 is tested on moto: ${error?.message ?? stderr}`);
  rmSync(folder, { recursive: true });
}
