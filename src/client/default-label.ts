import { hostname, userInfo } from "node:os";
import { basename } from "node:path";
import { cleanLabel } from "../util/keys.ts";

let cachedLabel: string | null = null;

/** The label of a client without the `label` option: `user@host pid program`. Arguments may hold secrets and stay out. */
export function defaultLabel(): string {
  cachedLabel ??= cleanLabel(
    `${readUserName()}@${hostname()} pid ${process.pid} ${basename(process.argv[1] ?? process.execPath)}`,
  );
  return cachedLabel;
}

function readUserName(): string {
  try {
    return userInfo().username;
  } catch (error) {
    // the user id has no entry in the password database, as in some containers
    if ((error as NodeJS.ErrnoException).syscall === undefined && !(error instanceof Error)) throw error;
    return `uid ${process.getuid?.() ?? "?"}`;
  }
}
