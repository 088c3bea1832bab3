/**
 * A process that uses the library, told by lines of JSON on its input what to do; what happens to it stands on its output
 * with the time of the machine's monotonic clock, which all processes share. It ends with its input.
 */

import type { Socket } from "node:net";
import { connect as dial } from "node:net";
import { createInterface } from "node:readline";
import Database from "libsql";
import { sqlite } from "../../../src/drivers/sql/sqlite/driver.ts";
import type { Lock, Locks } from "../../../src/index.ts";
import { connect, createLocks } from "../../../src/index.ts";
import type { Order, Report } from "./worker.ts";

const url = process.argv[2] === "" ? undefined : process.argv[2];
const registerPath = process.argv[3] ?? "";

type WorkerLock = {
  readonly lock: Lock;
  believedAt: bigint | null;
  /** Before the last whole round of the event loop began: what was due by then has been told. */
  roundAt: bigint | null;
  timer: NodeJS.Timeout | null;
};

const locks: Locks = await openStore();
const locksByName = new Map<string, WorkerLock>();
const register = openRegister(registerPath);
let finishedNames = false;
const monotonicNow = (): bigint => process.hrtime.bigint();

/** "rollback:path" is an SQLite file with a rollback journal: only a handle of the user keeps one. */
async function openStore(): Promise<Locks> {
  const [, path] = /^rollback:(.*)$/.exec(url ?? "") ?? [];
  if (path === undefined) return connect(url, { order: "strict" });
  return createLocks(sqlite(new Database(path), { silenceWarnings: ["journal"] }), { order: "strict" });
}

function report(of: string, event: Report["event"], more: Partial<Report> = {}): void {
  process.stdout.write(`${JSON.stringify({ ...more, of, event, at: String(monotonicNow()) })}\n`);
}

async function executeOrder(order: Order): Promise<void> {
  const { of } = order;
  try {
    if (order.do === "acquire") await acquire(order);
    else if (order.do === "load") await runLoad(order);
    else if (order.do === "finish") finishedNames = true;
    else if (order.do === "write") {
      const written = await register.write(of, tokenOf(of));
      report(of, written ? "written" : "refused");
    } else if (order.do === "release") {
      const { lock, timer } = locksByName.get(of) as WorkerLock;
      if (timer !== null) clearInterval(timer);
      report(of, "released", { kept: await lock.release() });
    } else {
      useLock(of);
    }
  } catch (error) {
    const { code, message } = error as { readonly code?: string; readonly message: string };
    report(of, "failed", { why: `${code ?? ""} ${message}` });
  }
}

function useLock(of: string): void {
  const workerLock = locksByName.get(of) as WorkerLock;
  let stopped = false;
  let before: bigint | null = null;
  // as a careful program does: look, then write; it writes as long as it believes
  workerLock.timer = setInterval(() => {
    // the time before the question: a stop between the answer and a look at the clock is nobody's belief
    const at = monotonicNow();
    // this round is whole when its timers have run; the time by which they go may be older than ours
    const round = before;
    before = at;
    setImmediate(() => {
      workerLock.roundAt = round;
    });
    if (stopped) return;
    try {
      workerLock.lock.throwIfLost();
    } catch {
      stopped = true;
      return report(of, "stopped", assertHeld(workerLock));
    }
    workerLock.believedAt = at;
    void register.write(of, workerLock.lock.token);
  }, 5);
}

function tokenOf(of: string): bigint {
  return (locksByName.get(of) as WorkerLock).lock.token;
}

async function acquire({ of, key, ttl, wait }: Extract<Order, { do: "acquire" }>): Promise<void> {
  report(of, "asked");
  const lock = await locks.acquire(key, { ...(ttl !== undefined && { ttl }), ...(wait !== undefined && { wait }) });
  const workerLock: WorkerLock = { lock, believedAt: null, roundAt: null, timer: null };
  locksByName.set(of, workerLock);
  report(of, "held", { token: String(lock.token) });
  lock.signal.addEventListener("abort", () => {
    const { reason } = lock.signal.reason as { readonly reason: string };
    report(of, "lost", {
      reason,
      ...assertHeld(workerLock),
      ...(workerLock.roundAt !== null && { roundAt: String(workerLock.roundAt) }),
    });
  });
}

function assertHeld({ believedAt }: WorkerLock): Partial<Report> {
  return believedAt === null ? {} : { believedAt: String(believedAt) };
}

/** Takes each key in turn, enters the register under its token, and leaves it, until told to stop. */
async function runLoad({ of, keys, ttl, holdMs }: Extract<Order, { do: "load" }>): Promise<void> {
  let turns = 0;
  while (!finishedNames) {
    const key = keys[turns % keys.length] as string;
    const lock = await locks.acquire(key, ttl === undefined ? {} : { ttl });
    const { token } = lock;
    await register.enter(key, token);
    await sleep(Math.random() * holdMs);
    await register.leave(key, token);
    const lost = lock.signal.aborted;
    const kept = await lock.release();
    if (!kept) {
      const reason = (lock.signal.reason as { readonly reason?: string } | undefined)?.reason ?? "none";
      report(of, "lost", { token: String(token), reason: `${lost ? "before" : "at"} release: ${reason}` });
    }
    turns++;
  }
  report(of, "done", { turns });
}

function sleep(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}

type Register = {
  write(key: string, token: bigint): Promise<boolean>;
  enter(key: string, token: bigint): Promise<boolean>;
  leave(key: string, token: bigint): Promise<boolean>;
};

/** The protected resource is a process of its own; it answers in the order it is asked. */
function openRegister(path: string): Register {
  let socket: Socket | null = null;
  const answers: ((accepted: boolean) => void)[] = [];
  const request = (verb: string, key: string, token: bigint): Promise<boolean> => {
    socket ??= open();
    socket.write(`${JSON.stringify({ what: verb, key, token: String(token), pid: process.pid })}\n`);
    return new Promise((resolve) => answers.push(resolve));
  };
  function open(): Socket {
    const newSocket = dial({ path });
    createInterface({ input: newSocket }).on("line", (line) => answers.shift()?.(line === "accepted"));
    return newSocket;
  }
  return {
    write: (key, token) => request("write", key, token),
    enter: (key, token) => request("enter", key, token),
    leave: (key, token) => request("leave", key, token),
  };
}

report("", "ready");
createInterface({ input: process.stdin })
  .on("line", (line) => void executeOrder(JSON.parse(line) as Order))
  .on("close", () => process.exit(0));
