// Hono: one request per order at a time. While one is being paid, a second request for the same order is refused.

import { EventEmitter, once } from "node:events";
import { serve } from "@hono/node-server";
import { connect } from "holdfast";
import { createHonoMiddleware, requestLock } from "holdfast/middleware";
import { Hono } from "hono";

const locks = await connect();
const bank = new EventEmitter();
const app = new Hono();

app.post(
  "/orders/:id/pay",
  createHonoMiddleware(locks, { key: "order:#{params.id}", wait: 0, maxHold: "1m" }),
  async (c) => {
    const { lock, signal } = requestLock(c);
    bank.emit("asked", lock.token);
    await once(bank, "confirmed", { signal });
    return c.json({ paid: c.req.param("id") });
  },
);

const address = await new Promise<string>((resolve) => {
  const server = serve({ fetch: app.fetch, port: 0, hostname: "127.0.0.1" }, ({ port }) => {
    server.unref();
    resolve(`http://127.0.0.1:${port}`);
  });
});

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

await locks.close();
