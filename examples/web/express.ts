// Express: one request per order at a time. While one is being paid, a second request for the same order is refused.

import { EventEmitter, once } from "node:events";
import type { AddressInfo } from "node:net";
import express from "express";
import { connect } from "holdfast";
import { createExpressMiddleware, requestLock } from "holdfast/middleware";

const locks = await connect();
const bank = new EventEmitter();
const app = express();

app.post(
  "/orders/:id/pay",
  express.json(),
  // behind the parser of the body, so that no slow client holds the lock while it sends
  createExpressMiddleware(locks, { key: "order:#{params.id}", wait: 0, maxHold: "1m" }),
  async (req, res) => {
    const { lock, signal } = requestLock(req);
    bank.emit("asked", lock.token);
    await once(bank, "confirmed", { signal });
    res.json({ paid: req.params.id });
  },
);

const server = app.listen(0, "127.0.0.1");
await once(server, "listening");
const { port } = server.address() as AddressInfo;

async function pay(id: string): Promise<string> {
  const response = await fetch(`http://127.0.0.1:${port}/orders/${id}/pay`, { method: "POST" });
  return `${response.status} ${await response.text()}`;
}

const asked = once(bank, "asked");
const first = pay("42");
await asked;
console.log(`meanwhile: ${await pay("42")}`);
bank.emit("confirmed");
console.log(`first: ${await first}`);

server.close();
await once(server, "close");
await locks.close();
