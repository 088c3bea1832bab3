/**
 * The resource that contenders of two kinds share, in the test's own process, so that its log is the one order of all
 * that happened. A line "enter NAME" or "leave NAME" is answered when it is written down; who dies inside has left.
 */

import type { AddressInfo, Socket } from "node:net";
import { createServer } from "node:net";
import { createInterface } from "node:readline";

export type Register = AsyncDisposable & {
  readonly port: number;
  /** Who entered, in order. */
  readonly entered: readonly string[];
  /** Who is inside now. */
  readonly inside: ReadonlySet<string>;
  /** What must not have happened. */
  readonly faults: readonly string[];
  /** Most that were inside at once. */
  readonly most: number;
};

export type RegisterOptions = {
  /** May these two be inside at once? Default: nobody beside another. */
  readonly together?: (one: string, other: string) => boolean;
  /** Asked when somebody enters, before that is answered: a fault, or null. */
  readonly witness?: (name: string) => Promise<string | null>;
};

export async function openRegister(options: RegisterOptions = {}): Promise<Register> {
  const { together = () => false, witness = async () => null } = options;
  const entered: string[] = [];
  const faults: string[] = [];
  const inside = new Set<string>();
  const sockets = new Set<Socket>();
  let most = 0;

  async function enter(name: string): Promise<void> {
    for (const other of inside) if (!together(name, other)) faults.push(`${name} entered beside ${other}`);
    inside.add(name);
    entered.push(name);
    most = Math.max(most, inside.size);
    const fault = await witness(name);
    if (fault !== null) faults.push(fault);
  }

  const server = createServer((socket) => {
    let who = "";
    sockets.add(socket);
    socket.setNoDelay(true);
    socket.on("error", () => undefined);
    socket.on("close", () => {
      sockets.delete(socket);
      inside.delete(who);
    });
    const lines = createInterface({ input: socket });
    lines.on("error", () => undefined);
    lines.on("line", (line) => {
      const [what, name = ""] = line.split(" ");
      who = name;
      if (what === "leave" && !inside.delete(name)) faults.push(`${name} left without having entered`);
      void (what === "enter" ? enter(name) : Promise.resolve()).then(() => socket.write("written\n"));
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    port: (server.address() as AddressInfo).port,
    entered,
    inside,
    faults,
    get most() {
      return most;
    },
    async [Symbol.asyncDispose]() {
      for (const socket of sockets) socket.destroy();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}
