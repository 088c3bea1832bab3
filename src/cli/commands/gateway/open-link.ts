/**
 * Opens a link with a secret in the browser of this desktop. Other users of the machine can read the arguments of a
 * process: so the browser opens a file that only this user can read, and the file leads to the link.
 */

import { spawn } from "node:child_process";
import { existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { info } from "../../output.ts";

/** How long the file exists: as long as the link is valid. */
const FILE_MS = 60_000;

/** A link that cannot be opened, on a full disk or without a desktop, is reported: the user has one on the screen, too. */
export function openInBrowser(link: string): void {
  try {
    openFile(link);
  } catch (error) {
    reportFailure(error as Error);
  }
}

function openFile(link: string): void {
  const folder = createFolder();
  const remove = (): void => rmSync(folder, { recursive: true, force: true });
  process.once("exit", remove);
  setTimeout(remove, FILE_MS).unref();
  const file = join(folder, "dashboard.html");
  writeFileSync(file, `<!doctype html><meta http-equiv="refresh" content="0; url=${link}">\n`, { mode: 0o600 });
  const program = process.platform === "darwin" ? "open" : "xdg-open";
  const child = spawn(program, [file], { stdio: "ignore", detached: true });
  child.on("error", (error) => {
    remove();
    reportFailure(error);
  });
  child.unref();
}

function reportFailure({ message }: Error): void {
  info(`the link could not be opened: ${message}`);
}

/** In the folder of this user's session, if there is one: without a login it may not exist. */
function createFolder(): string {
  const { XDG_RUNTIME_DIR: session = "" } = process.env;
  return mkdtempSync(join(existsSync(session) ? session : tmpdir(), "holdfast-"));
}
