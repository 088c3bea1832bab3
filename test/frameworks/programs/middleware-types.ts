// What the compiler knows of holdfast/middleware with the real types of the frameworks. Compiled, not run.

import type { Request, Response } from "express";
import express from "express";
import type { FastifyReply, FastifyRequest } from "fastify";
import fastify from "fastify";
import type { Locks } from "holdfast";
import { createExpressMiddleware, createFastifyHook, createHonoMiddleware, requestLock } from "holdfast/middleware";
import type { Context } from "hono";
import { Hono } from "hono";

declare const locks: Locks;

const app = express();
app.use(createExpressMiddleware(locks, { key: "all" }));
app.use("/orders", createExpressMiddleware(locks, { key: (req: Request) => req.get("idempotency-key") ?? null }));
app.post("/orders/:id", createExpressMiddleware(locks, { key: (req) => `order:${req.params.id}` }), (req, res) => {
  const token: bigint = requestLock(req).lock.token;
  res.json({ id: req.params.id, token: String(token) });
});
app.post(
  "/orders/:id",
  createExpressMiddleware(locks, {
    key: "order:#{params.id}",
    busyStatus: 423,
    onRefused: ({ status, error }, req: Request, res: Response, next) =>
      req.accepts("json") ? res.status(status).json({}) : next(error),
  }),
);
// @ts-expect-error a status that means something else
createExpressMiddleware(locks, { key: "k", busyStatus: 200 });
// @ts-expect-error the key is needed
createExpressMiddleware(locks, { wait: "1s" });
// @ts-expect-error an option that does not exist
createExpressMiddleware(locks, { key: "k", timeout: 1 });
// @ts-expect-error undefined is no key
createExpressMiddleware(locks, { key: (req: Request) => req.get("idempotency-key") });

const server = fastify();
server.post(
  "/",
  { preHandler: createFastifyHook(locks, { key: (request) => `order:${request.url}` }) },
  async () => "",
);
server.post<{ Params: { id: string } }>(
  "/orders/:id",
  { preHandler: [createFastifyHook(locks, { key: (request) => `order:${request.params.id}` })] },
  async (request) => requestLock(request).signal.aborted,
);
server.addHook("preHandler", createFastifyHook(locks, { key: ({ url }: FastifyRequest) => url }));
server.addHook(
  "preHandler",
  createFastifyHook(locks, {
    key: "k",
    onRefused: ({ status }, _request, reply: FastifyReply) => reply.code(status).send(""),
  }),
);

const hono = new Hono<{ Variables: { tenant: string } }>();
hono.use(createHonoMiddleware(locks, { key: "k" }));
hono.post("/orders/:id", createHonoMiddleware(locks, { key: (c) => `${c.req.param("id")}` }), (c) =>
  c.json({ tenant: c.get("tenant"), keys: requestLock(c).lock.keys }),
);
hono.use(createHonoMiddleware(locks, { key: "k", onRefused: ({ status }, c: Context) => c.text("busy", status) }));
