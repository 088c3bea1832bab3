// The fault that no lock can prevent, with real processes: a holder reads an account under its lock, is stopped by the system
// before it writes, and goes on long after its lease has ended and another one has written. On the account without a guard
// that withdrawal is lost. On the guarded one the token of the late write gives it away.

import { fork } from "node:child_process";
import { on, once } from "node:events";
import { fileURLToPath } from "node:url";
import { connect } from "holdfast";
import { createFenceGuard } from "holdfast/fencing";

const KEY = "account";

async function runHolder(): Promise<void> {
  const locks = await connect(undefined, { ttl: "1s" });
  const lock = await locks.acquire(KEY);
  process.send?.({ do: "read" });
  const [balance] = (await once(process, "message")) as [number];
  lock.throwIfLost(); // it is ours, beyond doubt
  process.kill(process.pid, "SIGSTOP"); // and right here the system stops us
  await send({ do: "write", balance: balance - 30, token: String(lock.token) });
  try {
    lock.throwIfLost(); // asking again before the write would have helped here; the system may stop us after any check
  } catch (error) {
    await send({ do: "say", text: (error as Error).message });
  }
  await lock.release();
  await locks.close();
  process.disconnect();
}

function send(message: Message): Promise<void> {
  return new Promise((resolve) => process.send?.(message, undefined, {}, () => resolve()));
}

type Message =
  | { readonly do: "read" }
  | { readonly do: "write"; readonly balance: number; readonly token: string }
  | { readonly do: "say"; readonly text: string };

/** The resource, in the parent process: two accounts, of which one compares tokens. */
const accounts = { plain: 100, guarded: 100 };
const guard = createFenceGuard();

function write(who: string, balance: number, token: bigint): void {
  accounts.plain = balance;
  console.log(`${who} writes ${balance}, without a token: accepted`);
  try {
    guard.check(KEY, token);
    accounts.guarded = balance;
    console.log(`${who} writes ${balance}, with its token: accepted`);
  } catch (error) {
    console.log(`${who} writes ${balance}, with its token: refused (${(error as { readonly code?: string }).code})`);
  }
}

async function runParent(): Promise<void> {
  const locks = await connect();
  const child = fork(fileURLToPath(import.meta.url), ["holder"]);
  const exit = once(child, "exit");
  const messages = on(child, "message", { close: ["disconnect"] }) as AsyncIterableIterator<[Message]>;
  for await (const [message] of messages) {
    if (message.do === "write") {
      write("the stopped holder", message.balance, BigInt(message.token));
    } else if (message.do === "say") {
      console.log(`what the stopped holder is told: ${message.text}`);
    } else {
      child.send(accounts.plain);
      const lock = await locks.acquire(KEY, { wait: "30s" }); // granted when the child's lease has ended
      write("the next holder", accounts.plain - 50, lock.token);
      await lock.release();
      child.kill("SIGCONT");
    }
  }
  await exit;
  console.log(`100 - 30 - 50 without tokens: ${accounts.plain}, one withdrawal is lost`);
  console.log(`with tokens: ${accounts.guarded}, the late one was refused and can be repeated`);
  await locks.close();
}

await (process.argv[2] === "holder" ? runHolder() : runParent());
