// A lease is not a proof. Here a holder outlives its lease without noticing, and the resource it writes to refuses it,
// because the token of its lock is older than one the resource has seen.

import { setTimeout as delay } from "node:timers/promises";
import { connect } from "holdfast";
import { createFenceGuard } from "holdfast/fencing";

/** What every resource worth a lock should do: remember the highest token, and refuse lower ones. */
class Register {
  value = "";
  readonly #guard = createFenceGuard();

  write(value: string, token: bigint): void {
    this.#guard.check("register", token); // throws a StaleLockError
    this.value = value;
  }
}

const register = new Register();
// renew: false stands for all that keeps a process from renewing: a long computation, a full disk, a sleeping laptop
const slowLock = await connect(undefined, { ttl: "200ms", renew: false });
const nextLock = await connect();

const lostReason = await slowLock.acquire("register");
register.write("first", lostReason.token);

const lock = await nextLock.acquire("register"); // waits for the end of the lease
register.write("second", lock.token);
console.log(`the second token is higher: ${lock.token > lostReason.token}`);

await delay(1); // whatever the first holder was doing, it goes on now
try {
  register.write("late", lostReason.token);
} catch (error) {
  console.log(`the late write was refused: ${(error as { readonly code?: string }).code}`);
}
console.log(`the register says: ${register.value}`);
console.log(`the first holder still held it: ${await lostReason.release()}, the second: ${await lock.release()}`);
await slowLock.close();
await nextLock.close();
