/** Descriptors of this process that its children inherit; Linux shows them. */

import { readdirSync, readFileSync } from "node:fs";

const CLOSE_ON_EXEC = 0o2000000;

/** The numbers of those above `above` that no program marked as its own (close-on-exec); none where nothing shows them. */
export function listInheritable(above: number): number[] {
  let names: string[];
  try {
    names = readdirSync("/proc/self/fdinfo");
  } catch {
    // no such file system
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
    // the listing's own descriptor, closed by now
    return null;
  }
}
