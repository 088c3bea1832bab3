/** The TCP connections of a process, as Linux shows them. */

import { readdirSync, readFileSync, readlinkSync } from "node:fs";

const ESTABLISHED = "01";
/** The fields of a line of /proc/PID/net/tcp. */
const [STATE_FIELD, INODE_FIELD] = [3, 9];

/** How many are established. */
export function countConnections(pid: number): number {
  const established = new Set(["tcp", "tcp6"].flatMap((table) => readEstablished(`/proc/${pid}/net/${table}`)));
  return readdirSync(`/proc/${pid}/fd`).filter((descriptor) => {
    const [, inode] = /^socket:\[(\d+)\]$/.exec(readTarget(`/proc/${pid}/fd/${descriptor}`)) ?? [];
    return inode !== undefined && established.has(inode);
  }).length;
}

/** The inodes of its sockets. */
function readEstablished(path: string): string[] {
  return readFileSync(path, "latin1")
    .split("\n")
    .slice(1)
    .map((line) => line.trim().split(/\s+/))
    .filter((fields) => fields[STATE_FIELD] === ESTABLISHED)
    .map((fields) => fields[INODE_FIELD] ?? "");
}

/** Empty if it was closed meanwhile. */
function readTarget(path: string): string {
  try {
    return readlinkSync(path);
  } catch {
    return "";
  }
}
