/** The HTTP API: its routes, authentication and error responses. */

import type { IncomingMessage, ServerResponse } from "node:http";
import { getRequestListener } from "@hono/node-server";
import { RESPONSE_ALREADY_SENT } from "@hono/node-server/utils/response";
import type { ErrorHandler, MiddlewareHandler } from "hono";
import { Hono } from "hono";
import { methodNotAllowed } from "hono/method-not-allowed";
import type { AccessControl, Principal } from "../../auth/access-control.ts";
import { ProtocolError } from "../../protocol/handshake.ts";
import type { EventLog } from "../../server/events/event-log.ts";
import type { ConnectionCounts } from "../../server/events/metrics.ts";
import type { Readiness } from "../../server/status.ts";
import type { Dashboard } from "../dashboard/dashboard.ts";
import { addDashboardRoutes } from "../dashboard/routes.ts";
import { References } from "../references.ts";
import type { GatewayService } from "../service.ts";
import { CLAIM_ROUTES, ClaimRoutes } from "./claim-routes.ts";
import type { HttpContext, HttpEnv } from "./context.ts";
import { clientAddress, watchDisconnect } from "./context.ts";
import { EVENT_ROUTES, EventStream } from "./event-stream.ts";
import { LOCK_ROUTES, LockRoutes } from "./lock-routes.ts";
import { createOpenApiDocument } from "./openapi.ts";
import { formatProblem, formatProblemHeaders, internalProblem, invalidField, Problem, toProblem } from "./problem.ts";
import type { Handlers, Routes } from "./route-parts.ts";
import { OPEN } from "./route-parts.ts";
import { SentEvents } from "./sent-events.ts";
import { STATUS_ROUTES, StatusRoutes } from "./status-routes.ts";

/** The period in which wrong credentials of an address are counted. */
const MINUTE_MS = 60_000;

/** The parts that the HTTP API needs. */
export interface HttpAppOptions {
  readonly service: GatewayService;
  readonly access: AccessControl;
  /** The source of /events. */
  readonly eventLog: EventLog;
  /** The source of /metrics. */
  readonly metrics: { recordRefusal(code: string): void; render(http: ConnectionCounts): string };
  /** For /ready: can the server grant a lock now, and if not, why? */
  readonly checkReadiness: () => Readiness;
  /** The version of this program. */
  readonly version: string;
  readonly dashboard: Dashboard;
}

/** The HTTP API of a server. */
export interface HttpApp {
  readonly handle: (incoming: IncomingMessage, outgoing: ServerResponse) => Promise<void>;
  /** The numbers of waiting claims and of event streams. */
  stats(): { readonly waiting: number; readonly streams: number };
  /**
   * Ends waits and event streams. Waiting claims stay in the queue, as after every wait. To be called before the store
   * takes no more calls.
   */
  drain(): void;
  /** Stops all timers and streams, and closes the store. To be called after all connections have ended. */
  close(): void;
}

/** Creates the HTTP API. `connections`: the numbers of connections over HTTP, for /metrics. */
export function createHttpApp(options: HttpAppOptions, connections: ConnectionCounts): HttpApp {
  const { service, access, eventLog, dashboard } = options;
  const { store, register, places } = service;
  const [streams, viewerStreams] = [new SentEvents(service.clock), new SentEvents(service.clock)];
  const authenticate = createAuthentication(service, access);
  const authenticated = requireCredential(options, authenticate);

  const app = new Hono<HttpEnv>();
  app.use(countProblems(options.metrics), watchDisconnect, rejectOtherMethods(app));
  // each is served and documented by one declaration, beside its handler
  function serve<Name extends string>(routes: Routes<Name>, handlers: Handlers<NoInfer<Name>>): void {
    for (const name of Object.keys(routes) as Name[]) {
      const { method, path, security } = routes[name];
      app.on(method, [path], ...(security === OPEN ? [] : [authenticated]), (c) => handlers[name](c));
    }
  }
  serve(
    CLAIM_ROUTES,
    new ClaimRoutes(service, new References(store, places, register), (pause) => dashboard.recordPause(pause)),
  );
  serve(LOCK_ROUTES, new LockRoutes(service));
  serve(EVENT_ROUTES, new EventStream(service, eventLog, streams));
  serve(STATUS_ROUTES, new StatusRoutes({ ...options, connections, createOpenApiDocument }));
  addDashboardRoutes(app, {
    service,
    access,
    dashboard,
    streams: viewerStreams,
    authenticate: (credential, c) => authenticate(c, credential),
  });
  app.notFound((c) => respond(c as HttpContext, new Problem("NOT_FOUND", "path", "this path does not exist")));
  app.onError(createErrorHandler(service));

  const accessListener = access.onChange(() => {
    places.revalidatePrincipals();
    store.revalidatePrincipals();
    for (const one of [streams, viewerStreams]) one.revalidatePrincipals();
  });
  return {
    handle: toNodeListener(app, service),
    stats: () => ({ waiting: places.size, streams: streams.count + viewerStreams.count }),
    drain() {
      places.drain();
      for (const one of [streams, viewerStreams]) one.close();
    },
    close() {
      accessListener[Symbol.dispose]();
      for (const one of [streams, viewerStreams]) one.close();
      dashboard.close();
      register.close();
      store.close().catch((error: unknown) => service.log("the store could not be closed", error));
    },
  };
}

/** Connects the app to Node's server. */
function toNodeListener(app: Hono<HttpEnv>, service: GatewayService): HttpApp["handle"] {
  const invalidTarget = invalidField("target", "malformed", "the request target must be a path");
  const listener = getRequestListener(app.fetch as Parameters<typeof getRequestListener>[0], {
    // without this the adapter replaces the global Request and Response of the complete process
    overrideGlobalObjects: false,
    errorHandler: () =>
      new Response(formatProblem(invalidTarget), { status: 400, headers: formatProblemHeaders(invalidTarget) }),
  });
  return (incoming, outgoing) =>
    listener(incoming, outgoing).catch((error: unknown) => service.log("a request failed", error));
}

/** The principal of a credential. */
type Authenticate = (c: HttpContext, credential: string | null) => Principal;

/** @throws (as the function) ProtocolError AUTH; Problem LIMIT after too many wrong credentials from this address */
function createAuthentication(service: GatewayService, access: AccessControl): Authenticate {
  return (c, credential) => {
    const address = clientAddress(c);
    try {
      return access.authenticate(credential, address);
    } catch (error) {
      if (!(error instanceof ProtocolError)) throw error;
      service.rejectionLog.record(error, address);
      if (error.code !== "LIMIT") throw error;
      throw new Problem("LIMIT", "credential", error.message, { retryMs: MINUTE_MS });
    }
  };
}

/**
 * Sets `principal` by the credential in the Authorization header.
 * @throws as Authenticate; Problem INVALID if the header is not a bearer credential; Problem AUTH, always, where only the
 * viewers of the dashboard may use the store
 */
function requireCredential(
  { access, dashboard }: HttpAppOptions,
  authenticate: Authenticate,
): MiddlewareHandler<HttpEnv> {
  const isForViewersOnly = dashboard.options.hasStartTokens === true && !access.isRequired;
  return async (c, next) => {
    if (isForViewersOnly)
      throw new Problem(
        "AUTH",
        "credential",
        "this is a dashboard without accounts: `holdfast gateway` serves the API",
      );
    c.set("principal", authenticate(c, parseCredential(c.env.incoming.headers.authorization)));
    await next();
  };
}

function parseCredential(header: string | undefined): string | null {
  if (header === undefined) return null;
  const match = /^Bearer ([\x21-\x7e]{1,1024})$/i.exec(header);
  if (match === null) throw invalidField("authorization", "malformed", "Authorization must be: Bearer CREDENTIAL");
  return match[1] as string;
}

/** Answers OPTIONS, and other methods than those of a path. */
function rejectOtherMethods(app: Hono<HttpEnv>): MiddlewareHandler<HttpEnv> {
  const untyped = app as unknown as Hono;
  const middleware = methodNotAllowed({
    app: untyped,
    onMethodNotAllowed: (context, methods) => {
      const c = context as unknown as HttpContext;
      const allow = [...methods, "OPTIONS"].join(", ");
      if (c.req.method !== "OPTIONS")
        return respond(c, new Problem("METHOD", "method", `${c.req.path} supports only ${allow}`, { allow }));
      c.set("problem", undefined);
      // not c.body(): it would keep the content type of the 404 that Hono has prepared
      return new Response(null, { status: 204, headers: { allow } });
    },
  });
  return middleware as unknown as MiddlewareHandler<HttpEnv>;
}

function createErrorHandler(service: GatewayService): ErrorHandler<HttpEnv> {
  return (error, c) => {
    const { incoming, outgoing } = c.env;
    // the body was malformed, and http-server.ts has responded
    if (outgoing.headersSent) return RESPONSE_ALREADY_SENT;
    const problem = toProblem(error);
    if (problem !== null) return respond(c, problem);
    // caused by a client that has disconnected, so there is no client to answer
    if (c.get("disconnected").aborted || (incoming.destroyed && !incoming.complete)) return c.body(null, 500);
    service.log("a request failed", error);
    return respond(c, internalProblem());
  };
}

function respond(c: HttpContext, problem: Problem): Response {
  c.set("problem", problem);
  return new Response(formatProblem(problem), { status: problem.status, headers: formatProblemHeaders(problem) });
}

function countProblems({ recordRefusal }: HttpAppOptions["metrics"]): MiddlewareHandler<HttpEnv> {
  return async (c, next) => {
    await next();
    const problem = c.get("problem");
    if (problem !== undefined) recordRefusal(problem.code);
  };
}
