import { hostname, userInfo } from "node:os";
import { basename } from "node:path";
import { checkedLabel } from "../keys.ts";

let known: string | null = null;

/** What people read of us in lists when no label was given: `user@host pid program`, never arguments. */
export function defaultLabel(): string {
  known ??= checkedLabel(
    `${userName()}@${hostname()} pid ${process.pid} ${basename(process.argv[1] ?? process.execPath)}`,
  );
  return known;
}

function userName(): string {
  try {
    return userInfo().username;
  } catch (error) {
    // a user id without an entry in the password database, as in some containers
    if ((error as NodeJS.ErrnoException).syscall === undefined && !(error instanceof Error)) throw error;
    return `uid ${process.getuid?.() ?? "?"}`;
  }
}
