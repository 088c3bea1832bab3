/** Middleware for HTTP servers: one request per key at a time. */

export { createExpressMiddleware, type ExpressLockOptions } from "./express.ts";
export { createFastifyHook, type FastifyLockOptions } from "./fastify.ts";
export { createHonoMiddleware, type HonoLockOptions } from "./hono.ts";
export type { Refusal } from "./refusal.ts";
export { type RequestLock, requestLock } from "./request-lock.ts";
export type { RequestLockOptions } from "./request-runner.ts";
