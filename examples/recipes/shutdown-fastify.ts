// Fastify: close() lets the running requests end; locks are closed after that.

import { setTimeout as delay } from "node:timers/promises";
import fastify from "fastify";
import { connect } from "holdfast";
import { createFastifyHook, requestLock } from "holdfast/middleware";

const locks = await connect();
const app = fastify();

// called when the requests have been answered
app.addHook("onClose", () => locks.close());

app.post<{ Params: { id: string } }>(
  "/orders/:id/pay",
  { preHandler: createFastifyHook(locks, { key: "order:#{params.id}" }) },
  async (request) => {
    console.log("paying");
    await delay(300, undefined, { signal: requestLock(request).signal });
    return { paid: request.params.id };
  },
);

await app.listen({ port: Number(process.env.PORT ?? 0), host: "127.0.0.1" });
console.log(JSON.stringify(app.server.address()));

process.once("SIGTERM", () => void app.close());
