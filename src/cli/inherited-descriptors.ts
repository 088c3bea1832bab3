/** The descriptors of this process that its children inherit, as Linux lists them in /proc. */

import { readdirSync, readFileSync } from "node:fs";

const CLOSE_ON_EXEC = 0o2000000;

/** The descriptors above `above` that are not close-on-exec. Empty on a system without /proc/self/fdinfo. */
export function listInheritable(above: number): number[] {
  let names: string[];
  try {
    names = readdirSync("/proc/self/fdinfo");
  } catch {
    // not Linux
    return [];
  }
  return names.map(Number).filter((descriptor) => {
    if (descriptor <= above) return false;
    const flags = readDescriptorFlags(descriptor);
    return flags !== null && (flags & CLOSE_ON_EXEC) === 0;
  });
}

function readDescriptorFlags(descriptor: number): number | null {
  try {
    const match = /^flags:\s*(\d+)$/m.exec(readFileSync(`/proc/self/fdinfo/${descriptor}`, "latin1"));
    return match === null ? null : Number.parseInt(match[1] as string, 8);
  } catch {
    // the descriptor of the directory listing itself, closed by now
    return null;
  }
}
