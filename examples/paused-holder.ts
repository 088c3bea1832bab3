// The fault that no lock can prevent, with real processes: a holder checks its lock, is stopped by the system before it
// writes, and goes on long after its lease has ended and another one has written. The token is what saves the value.

import { fork } from "node:child_process";
import { on, once } from "node:events";
import { fileURLToPath } from "node:url";
import { connect } from "holdfast";

const KEY = "register";

async function runHolder(): Promise<void> {
  const locks = await connect(undefined, { ttl: "3s" });
  const lock = await locks.acquire(KEY);
  await send({ say: "holding" });
  lock.throwIfLost(); // it is ours, beyond doubt
  process.kill(process.pid, "SIGSTOP"); // and right here the system stops us
  await send({ write: "late", token: String(lock.token) });
  try {
    lock.throwIfLost(); // asking again before the write would have helped here; the system may stop us after any check
  } catch (error) {
    await send({ say: (error as Error).message });
  }
  await lock.release();
  await locks.close();
  process.disconnect();
}

function send(message: Message): Promise<void> {
  return new Promise((resolve) => process.send?.(message, undefined, {}, () => resolve()));
}

type Message = { readonly say: string } | { readonly write: string; readonly token: string };

/** The resource, in the parent process. It compares tokens and nothing else. */
const register = { value: "", token: 0n };

function write(value: string, token: bigint): boolean {
  if (token < register.token) return false;
  register.value = value;
  register.token = token;
  return true;
}

async function runParent(): Promise<void> {
  const locks = await connect();
  const child = fork(fileURLToPath(import.meta.url), ["holder"]);
  const exit = once(child, "exit");
  const messages = on(child, "message", { close: ["disconnect"] }) as AsyncIterableIterator<[Message]>;
  for await (const [message] of messages) {
    if ("write" in message) {
      const accepted = write(message.write, BigInt(message.token));
      console.log(`the stopped holder goes on and writes: ${accepted ? "accepted" : "refused"}`);
    } else if (message.say === "holding") {
      const lock = await locks.acquire(KEY, { wait: "30s" }); // granted when the child's lease has ended
      console.log(`the next holder writes: ${write("second", lock.token) ? "accepted" : "refused"}`);
      await lock.release();
      child.kill("SIGCONT");
    } else {
      console.log(`what the stopped holder is told: ${message.say}`);
    }
  }
  await exit;
  console.log(`the register says: ${register.value}`);
  await locks.close();
}

await (process.argv[2] === "holder" ? runHolder() : runParent());
