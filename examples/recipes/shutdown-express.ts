// Express: on SIGTERM take no new requests, let the running ones end, and only then give up the locks.

import { once } from "node:events";
import { setTimeout as delay } from "node:timers/promises";
import express from "express";
import { connect } from "holdfast";
import { createExpressMiddleware, requestLock } from "holdfast/middleware";

const locks = await connect();
const app = express();

app.post("/orders/:id/pay", createExpressMiddleware(locks, { key: "order:#{params.id}" }), async (req, res) => {
  console.log("paying");
  await delay(300, undefined, { signal: requestLock(req).signal });
  res.json({ paid: req.params.id });
});

const server = app.listen(Number(process.env.PORT ?? 0), "127.0.0.1");
await once(server, "listening");
console.log(JSON.stringify(server.address()));

process.once("SIGTERM", async () => {
  const closed = once(server, "close");
  server.close(); // ends when the running requests have been answered
  const timer = setTimeout(() => server.closeAllConnections(), 15_000); // with the 5 s of close(): less than the grace period of the platform
  await closed;
  clearTimeout(timer);
  await locks.close(); // releases the remaining locks: the next holder need not wait for a lease
});
