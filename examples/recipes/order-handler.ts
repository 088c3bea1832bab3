// A web handler without a framework: one request per order at a time; a second one gets 409 at once.

import { once } from "node:events";
import type { ServerResponse } from "node:http";
import { createServer } from "node:http";
import { setTimeout as delay } from "node:timers/promises";
import type { Lock } from "holdfast";
import { connect, LockError } from "holdfast";

const locks = await connect();

async function pay(orderId: string, lock: Lock): Promise<void> {
  await delay(200, undefined, { signal: lock.signal }); // the payment service answers
  lock.throwIfLost(); // right before the result is stored, together with lock.token
  console.log(`paid ${orderId}`);
}

function answer(response: ServerResponse, status: number, body: object): void {
  response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(body));
}

const server = createServer(async (request, response) => {
  const [, orderId] = /^\/orders\/(\w{1,64})\/pay$/.exec(request.url ?? "") ?? [];
  if (orderId === undefined || request.method !== "POST") return answer(response, 404, { title: "Not Found" });
  try {
    // never waits: a request that waits costs a connection, and its client may have gone
    const lock = await locks.tryAcquire(`order:${orderId}`, { maxHold: "1m" });
    if (lock === null) return answer(response, 409, { title: "this order is being paid" });
    try {
      await pay(orderId, lock);
      answer(response, 200, { paid: orderId });
    } finally {
      await lock.release();
    }
  } catch (error) {
    console.error(error);
    // the store cannot be reached, or the lock was lost: not the same as "another request has the lock"
    if (!response.headersSent) answer(response, error instanceof LockError ? 503 : 500, { title: "try again later" });
  }
});

server.listen(Number(process.env.PORT ?? 0), "127.0.0.1");
await once(server, "listening");
console.log(JSON.stringify(server.address()));

process.once("SIGTERM", () => server.close(() => void locks.close()));
