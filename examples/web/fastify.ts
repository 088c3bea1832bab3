// Fastify: one request per order at a time. While one is being paid, a second request for the same order is refused.

import { EventEmitter, once } from "node:events";
import fastify from "fastify";
import { connect } from "holdfast";
import { createFastifyHook, requestLock } from "holdfast/middleware";

const locks = await connect();
const bank = new EventEmitter();
const app = fastify();

app.post<{ Params: { id: string } }>(
  "/orders/:id/pay",
  { preHandler: createFastifyHook(locks, { key: "order:#{params.id}", wait: 0, maxHold: "1m" }) },
  async (request) => {
    const { lock, signal } = requestLock(request);
    bank.emit("asked", lock.token);
    await once(bank, "confirmed", { signal });
    return { paid: request.params.id };
  },
);
app.addHook("onClose", () => locks.close());

const address = await app.listen({ port: 0, host: "127.0.0.1" });

async function pay(id: string): Promise<string> {
  const response = await fetch(`${address}/orders/${id}/pay`, { method: "POST" });
  return `${response.status} ${await response.text()}`;
}

const asked = once(bank, "asked");
const first = pay("42");
await asked;
console.log(`meanwhile: ${await pay("42")}`);
bank.emit("confirmed");
console.log(`first: ${await first}`);

await app.close();
