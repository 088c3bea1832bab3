/**
 * The resource that contenders of two kinds share, in the test's own process, so that its log is the one order of all
 * that happened. A line "enter NAME" or "leave NAME" is answered when it is written down; who dies inside has left.
 */

import type { AddressInfo, Socket } from "node:net";
import { createServer } from "node:net";
import { createInterface } from "node:readline";

export type ExclusionRegister = AsyncDisposable & {
  readonly port: number;
  /** Who entered, in order. */
  readonly entries: readonly string[];
  /** Who is inside now. */
  readonly holders: ReadonlySet<string>;
  /** What must not have happened. */
  readonly faults: readonly string[];
  /** Most that were inside at once. */
  readonly maxConcurrent: number;
};

export type RegisterOptions = {
  /** May these two be inside at once? Default: nobody beside another. */
  readonly mayOverlap?: (one: string, other: string) => boolean;
  /** Asked when somebody enters, before that is answered: a fault, or null. */
  readonly onEnter?: (name: string) => Promise<string | null>;
};

export async function openExclusionRegister(options: RegisterOptions = {}): Promise<ExclusionRegister> {
  const { mayOverlap = () => false, onEnter = async () => null } = options;
  const entries: string[] = [];
  const faults: string[] = [];
  const holders = new Set<string>();
  const sockets = new Set<Socket>();
  let maxInside = 0;

  async function enter(name: string): Promise<void> {
    for (const other of holders) if (!mayOverlap(name, other)) faults.push(`${name} entered beside ${other}`);
    holders.add(name);
    entries.push(name);
    maxInside = Math.max(maxInside, holders.size);
    const fault = await onEnter(name);
    if (fault !== null) faults.push(fault);
  }

  const server = createServer((socket) => {
    let holderName = "";
    sockets.add(socket);
    socket.setNoDelay(true);
    socket.on("error", () => undefined);
    socket.on("close", () => {
      sockets.delete(socket);
      holders.delete(holderName);
    });
    const lines = createInterface({ input: socket });
    lines.on("error", () => undefined);
    lines.on("line", (line) => {
      const [verb, name = ""] = line.split(" ");
      holderName = name;
      if (verb === "leave" && !holders.delete(name)) faults.push(`${name} left without having entered`);
      void (verb === "enter" ? enter(name) : Promise.resolve()).then(() => socket.write("written\n"));
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    port: (server.address() as AddressInfo).port,
    entries,
    holders,
    faults,
    get maxConcurrent() {
      return maxInside;
    },
    async [Symbol.asyncDispose]() {
      for (const socket of sockets) socket.destroy();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}
