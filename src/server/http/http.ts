/** The HTTP port: a JSON API enough to hold a lock with curl, health, metrics and events (design A.8). Loaded on demand. */

import type { Server as HttpServer, IncomingMessage, ServerOptions, ServerResponse } from "node:http";
import type { Server as HttpsServer } from "node:https";
import type { HttpBindings } from "@hono/node-server";
import { getRequestListener } from "@hono/node-server";
import { RESPONSE_ALREADY_SENT } from "@hono/node-server/utils/response";
import { Hono } from "hono";
import type { Access } from "../access.ts";
import type { Hub } from "../hub.ts";
import type { Connected, Metrics } from "../metrics.ts";
import type { Record } from "../record.ts";
import { Bouncer } from "./bouncer.ts";
import type { Route } from "./call.ts";
import { goneOf, send } from "./call.ts";
import { claimRoutes } from "./claims.ts";
import { eventStreams } from "./events.ts";
import { checkHead } from "./head.ts";
import { lockRoutes } from "./locks.ts";
import { Places } from "./places.ts";
import { Port, serverOptions } from "./port.ts";
import { internal, invalid, Problem, problemHeaders, problemOf, problemText, refuse } from "./problem.ts";
import { statusRoutes } from "./status.ts";

/** What the HTTP port is made of. */
export interface HttpOptions {
  /** The server whose locks it serves. */
  readonly hub: Hub;
  /** Who may do what. */
  readonly access: Access;
  /** What has happened: for /events. */
  readonly record: Record;
  /** What is counted: for /metrics. */
  readonly metrics: Pick<Metrics, "text" | "refused">;
  /** Could the server grant a lock now, and if not, why? For /ready. */
  readonly ready: () => { readonly ok: boolean; readonly why?: string };
  /** Of this program, for people. */
  readonly version: string;
  /** The host that was asked to be listened on: what a Host header may name besides the address itself. */
  readonly host: string;
  /**
   * Further names by which clients call the server: a Host header that is none of them is refused (DNS rebinding). Read
   * for each request: a new certificate may have others.
   */
  readonly names?: readonly string[];
}

/** The HTTP side of a server. */
export interface Http {
  /** For createServer() of node:http, or, with certificates added, of node:https. */
  readonly serverOptions: ServerOptions;
  /** Connections now, requests that wait for a lock (or may come back to wait), and streams of events. */
  stats(): { readonly connections: number; readonly waiting: number; readonly streams: number };
  /** Connections now, and since the start. */
  connected(): Connected;
  /** Makes a server of node:http or node:https, which is not listening yet, serve it. */
  attach(server: HttpServer | HttpsServer): void;
  /**
   * Ends long waits (their places stay, as at the end of every wait) and event streams; connections end with their next
   * answer. To be called before the hub's drain(); then close() the server itself.
   */
  drain(): void;
  /** Keeps nothing alive any more. After the server has closed. */
  close(): void;
}

/** Makes the HTTP side of a server. It opens no port. */
export function createHttp(options: HttpOptions): Http {
  const { hub, access, record, host } = options;
  const places = new Places(hub);
  const streams = eventStreams(hub, record);
  let draining = false;
  const routes = [
    ...claimRoutes(hub, places),
    ...lockRoutes(hub),
    ...statusRoutes(options, () => draining),
    ...streams.routes,
  ];
  const listener = listenerOf(routes, options);
  const port = new Port(hub, (incoming, outgoing) => {
    try {
      checkHead(incoming, { host, names: options.names ?? [] });
    } catch (error) {
      answerError(outgoing, error, options);
      return;
    }
    void listener(incoming, outgoing);
  });
  const attended = access.attend(() => {
    places.reexamine();
    streams.reexamine();
  });
  return {
    serverOptions: serverOptions(hub.limits.helloMs),
    connected: () => port.connections,
    stats: () => ({ connections: port.connections.inside, waiting: places.size, streams: streams.size }),
    attach: (server) => port.attach(server),
    drain() {
      draining = true;
      port.drain();
      places.drain();
      streams.close();
    },
    close() {
      attended[Symbol.dispose]();
      streams.close();
      places.close();
    },
  };
}

const NO_REQUEST = invalid("target", "malformed", "the request's target is no path");

type App = Hono<{ Bindings: HttpBindings }>;

function listenerOf(
  routes: readonly Route[],
  options: HttpOptions,
): (incoming: IncomingMessage, outgoing: ServerResponse) => Promise<void> {
  const app: App = new Hono<{ Bindings: HttpBindings }>();
  const bouncer = new Bouncer(options.hub, options.access);
  for (const route of routes) {
    app.on(route.method, route.path, ({ env }) => answer(route, env.incoming, env.outgoing, bouncer, options));
  }
  for (const [path, allow] of methodsOf(routes)) {
    app.all(path, ({ env: { incoming, outgoing } }) => {
      if (incoming.method === "OPTIONS") outgoing.writeHead(204, { allow }).end();
      else answerError(outgoing, new Problem(405, "METHOD", "method", `${path} has ${allow}`, { allow }), options);
      return RESPONSE_ALREADY_SENT;
    });
  }
  app.notFound(({ env }) => {
    answerError(env.outgoing, new Problem(404, "NOT_FOUND", "path", "there is nothing at this path"), options);
    return RESPONSE_ALREADY_SENT;
  });
  app.onError((error, { env }) => {
    answerError(env.outgoing, error, options);
    return RESPONSE_ALREADY_SENT;
  });
  const fail = (error: unknown): void => options.hub.log("a request failed", error);
  const listener = getRequestListener(app.fetch as Parameters<typeof getRequestListener>[0], {
    // a library must not replace what belongs to the whole process
    overrideGlobalObjects: false,
    errorHandler: () => new Response(problemText(NO_REQUEST), { status: 400, headers: problemHeaders(NO_REQUEST) }),
  });
  return (incoming, outgoing) => listener(incoming, outgoing).catch(fail);
}

/** What each path has, for 405 and OPTIONS. */
function methodsOf(routes: readonly Route[]): ReadonlyMap<string, string> {
  const found = new Map<string, string>();
  for (const { method, path } of routes) found.set(path, `${method === "GET" ? "GET, HEAD" : method}, OPTIONS`);
  return found;
}

async function answer(
  route: Route,
  incoming: IncomingMessage,
  outgoing: ServerResponse,
  bouncer: Bouncer,
  options: HttpOptions,
): Promise<Response> {
  const address = incoming.socket.remoteAddress ?? "";
  const [gone, done] = goneOf(incoming);
  try {
    const principal = await bouncer.letIn(route, incoming, address, gone);
    const reply = await route.handle({ incoming, outgoing, principal, address, gone });
    if (reply !== null && !outgoing.destroyed) send(outgoing, reply);
  } catch (error) {
    // who has gone in the midst of a request is told nothing, and is no fault
    const isGone = gone.aborted || (incoming.destroyed && !incoming.complete);
    if (!isGone || problemOf(error) !== null) answerError(outgoing, error, options);
  } finally {
    done();
  }
  return RESPONSE_ALREADY_SENT;
}

function answerError(outgoing: ServerResponse, error: unknown, { hub, metrics }: HttpOptions): void {
  const known = problemOf(error);
  if (known === null) hub.log("a request failed", error);
  const problem = known ?? internal();
  metrics.refused(problem.code);
  // an answer that has begun cannot become another one
  if (outgoing.headersSent) outgoing.destroy();
  else if (!outgoing.destroyed) refuse(outgoing, problem);
}
