/** Debian packages that tests need: installed if this is Debian or Ubuntu and we are root. */

import { spawnSync } from "node:child_process";
import { assertOutsideOfTests } from "./outside-of-tests.ts";

/** For the packages of one store, a slow mirror included. */
const INSTALL_MS = 600_000;

/** Another test file, or another program, may be installing just now. */
const LOCK_WAIT_OPTION = ["-o", "DPkg::Lock::Timeout=600"];

export function canInstall(): boolean {
  return process.getuid?.() === 0 && runApt(["--version"]);
}

/** @throws Error if they cannot be installed */
export function installPackages(names: readonly string[], purpose: string): void {
  assertOutsideOfTests(names.join(" and "));
  console.log(`installing ${names.join(" and ")} for ${purpose}`);
  const install = ["install", "-y", "--no-install-recommends", ...names];
  // the list of packages may be old, or not be there at all
  if (runApt(install) || (runApt(["update"]) && runApt(install))) return;
  throw new Error(`could not install ${names.join(" and ")}: install them by hand`);
}

function runApt(args: readonly string[]): boolean {
  const env = { ...process.env, DEBIAN_FRONTEND: "noninteractive" };
  return (
    spawnSync("apt-get", [...LOCK_WAIT_OPTION, ...args], { env, stdio: "ignore", timeout: INSTALL_MS }).status === 0
  );
}
