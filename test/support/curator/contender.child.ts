/**
 * Holdfast's contender: a process that obeys the orders of Contender.java, and tells the same; it knows a recipe more,
 * unfair. Ends with its input.
 */

import { once } from "node:events";
import { connect as dial } from "node:net";
import { createInterface } from "node:readline";
import { setTimeout as delay } from "node:timers/promises";
import { etcd } from "../../../src/drivers/etcd/driver.ts";
import { zookeeper } from "../../../src/drivers/zookeeper/driver.ts";
import type { Lock, Lockable, Locks } from "../../../src/index.ts";
import { createLocks } from "../../../src/index.ts";
import type { Driver } from "../../../src/spi/driver.ts";

const [server = "", sessionMs = "", registerPort = "", store = "zookeeper"] = process.argv.slice(2);

type Contender = {
  readonly locks: Locks;
  readonly path: string;
  readonly lockable: Lockable;
  readonly isRevocable: boolean;
  lock: Lock | null;
};

const contenders = new Map<string, Contender>();

function report(name: string, text: string): void {
  process.stdout.write(`${name} ${text}\n`);
}

function openContender(name: string, recipe: string, path: string): void {
  const ttl = store === "etcd" ? Number(sessionMs) : "session";
  const locks = createLocks(createDriver(recipe), { ttl, order: "strict", label: name });
  const lockable = recipe === "read" ? locks.rw(path).read : locks.mutex(path);
  contenders.set(name, { locks, path, lockable, isRevocable: false, lock: null });
  report(name, "open");
}

function createDriver(recipe: string): Driver {
  const [host = "", port] = server.split(":");
  // on a busy machine
  const common = { servers: [{ host, port: Number(port) }], connectTimeout: 30_000 };
  // a key is the name that other programs use
  if (store === "etcd") return etcd({ ...common, prefix: "" });
  return zookeeper({
    ...common,
    sessionMs: Number(sessionMs),
    fair: recipe !== "unfair",
    family: recipe === "read" || recipe === "write" ? "readWrite" : "mutex",
  });
}

async function executeCommand([verb = "", name = "", first = "", second = ""]: readonly string[]): Promise<void> {
  if (verb === "open") return openContender(name, first, second);
  const contender = contenders.get(name) as Contender;
  try {
    if (verb === "acquire") reportHeld(name, contender, await contender.lockable.acquire());
    else if (verb === "try")
      reportHeld(name, contender, await contender.lockable.acquire({ wait: Number(first) }).catch(isBusyError));
    else if (verb === "cycles") await runCycles(name, contender, Number(first), Number(second));
    else if (verb === "revocable") contenders.set(name, { ...contender, isRevocable: true });
    else if (verb === "release") {
      await contender.lock?.release();
      report(name, "released");
    } else if (verb === "revoke") {
      const [holder] = await contender.locks.list(contender.path);
      const isRevoked = holder?.token != null && (await contender.locks.revoke(contender.path, holder.token));
      report(name, isRevoked ? "revoked" : "found nobody");
    }
  } catch (error) {
    report(name, `failed ${error}`);
  }
}

function reportHeld(name: string, contender: Contender, lock: Lock | null): void {
  contender.lock = lock;
  report(name, lock === null ? "busy" : "held");
  if (lock === null || !contender.isRevocable) return;
  lock.signal.addEventListener("abort", () => {
    report(name, "asked");
    void lock.release().then(() => report(name, "released"));
  });
}

function isBusyError(error: { readonly code?: string }): null {
  if (error.code !== "LOCK_TIMEOUT") throw error;
  return null;
}

async function runCycles(name: string, { lockable }: Contender, times: number, holdMs: number): Promise<void> {
  const socket = dial(Number(registerPort), "127.0.0.1");
  socket.setNoDelay(true);
  await once(socket, "connect");
  const answers = createInterface({ input: socket })[Symbol.asyncIterator]();
  const say = async (text: string): Promise<void> => {
    socket.write(`${text} ${name}\n`);
    if ((await answers.next()).done === true) throw new Error("the register has gone");
  };
  for (let cycle = 0; cycle < times; cycle++) {
    const lock = await lockable.acquire();
    await say("enter");
    await delay(holdMs);
    await say("leave");
    await lock.release();
  }
  socket.end();
  report(name, "done");
}

process.stdout.write("ready\n");
for await (const line of createInterface({ input: process.stdin })) void executeCommand(line.split(" "));
process.exit(0);
