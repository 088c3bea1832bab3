// A lock that travels: one process acquires it, another one finishes the work and releases it. The reference that goes
// from one to the other is a secret: any program that has it can renew and release the lock. So it goes by a pipe, never by argument.

import { fork } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import { connect, LockLostError } from "holdfast";

async function acquireAndDetach(): Promise<void> {
  const locks = await connect();
  const lock = await locks.acquire("checkout:42", { ttl: "30s" });
  const { token } = lock;
  const reference = await lock.detach(); // not renewed from here on: another process has 30 seconds to attach it
  console.log(`free meanwhile: ${(await locks.tryAcquire("checkout:42")) !== null}`);

  const child = fork(fileURLToPath(import.meta.url), ["second"]);
  const exit = once(child, "exit");
  child.send({ reference, token: String(token) });
  await exit;

  try {
    await locks.attach(reference);
  } catch (error) {
    if (!(error instanceof LockLostError)) throw error;
    console.log(`attached once more: ${error.code}, ${error.reason}`);
  }
  await locks.close();
}

async function attachAndRelease(): Promise<void> {
  const [message] = (await once(process, "message")) as [{ readonly reference: string; readonly token: string }];
  const locks = await connect();
  const lock = await locks.attach(message.reference); // renewed from here on
  console.log(`the same token in the second process: ${lock.token === BigInt(message.token)}`);
  console.log(`released there: ${await lock.release()}`);
  await locks.close();
  process.disconnect();
}

await (process.argv[2] === "second" ? attachAndRelease() : acquireAndDetach());
