/** The HTTP port: a JSON API with which curl is enough to hold a lock, health probes, metrics and events. Loaded only with --http. */

import type { Server as HttpServer, IncomingMessage, ServerOptions, ServerResponse } from "node:http";
import type { Server as HttpsServer } from "node:https";
import type { HttpBindings } from "@hono/node-server";
import { getRequestListener } from "@hono/node-server";
import { RESPONSE_ALREADY_SENT } from "@hono/node-server/utils/response";
import { Hono } from "hono";
import type { AccessControl } from "../auth/access-control.ts";
import type { EventLog } from "../events/event-log.ts";
import type { ConnectionCounts } from "../events/metrics.ts";
import { HttpAuthenticator } from "./authenticator.ts";
import { claimRoutes } from "./claim-routes.ts";
import { createEventStreams } from "./event-stream.ts";
import { createServerOptions, HttpConnections } from "./http-connections.ts";
import { lockRoutes } from "./lock-routes.ts";
import { checkOrigin } from "./origin-check.ts";
import { PendingClaims } from "./pending-claims.ts";
import {
  formatProblem,
  formatProblemHeaders,
  internalProblem,
  invalidField,
  Problem,
  sendProblem,
  toProblem,
} from "./problem.ts";
import type { Route } from "./request-context.ts";
import { sendReply, watchDisconnect } from "./request-context.ts";
import type { StatusSources } from "./status-routes.ts";
import { statusRoutes } from "./status-routes.ts";

/** The parts that the HTTP port needs. */
export interface HttpAppOptions extends StatusSources {
  readonly access: AccessControl;
  /** The source of /events. */
  readonly eventLog: EventLog;
  /** The host of the --http address. A Host header may name it, or the address itself. */
  readonly host: string;
  /**
   * Further names by which clients call the server. Any other Host header is refused (DNS rebinding). Read for each request,
   * because a new certificate may have other names.
   */
  readonly names?: readonly string[];
}

/** The HTTP side of a server. */
export interface HttpApp {
  /** The options for createServer() of node:http or, with certificates added, of node:https. */
  readonly serverOptions: ServerOptions;
  /** The numbers of open connections, waiting claims and event streams. */
  stats(): { readonly connections: number; readonly waiting: number; readonly streams: number };
  /** The numbers of connections now and since the start. */
  connectionCounts(): ConnectionCounts;
  /** Attaches the handlers to a server of node:http or node:https that does not listen yet. */
  attach(server: HttpServer | HttpsServer): void;
  /**
   * Ends waits and event streams; each connection ends with its next response. Waiting claims stay in the queue, as after
   * every wait. Call this before the drain() of the LockService, then close() the server itself.
   */
  drain(): void;
  /** Stops all timers and streams. Call it after the server has closed. */
  close(): void;
}

/** Creates the HTTP side of a server. It opens no port. */
export function createHttpApp(options: HttpAppOptions): HttpApp {
  const { service, access, eventLog, host } = options;
  const pendingClaims = new PendingClaims(service);
  const eventStreams = createEventStreams(service, eventLog);
  let isDraining = false;
  const routes = [
    ...claimRoutes(service, pendingClaims),
    ...lockRoutes(service),
    ...statusRoutes(
      options,
      () => isDraining,
      () => connections.counts,
    ),
    ...eventStreams.routes,
  ];
  const listener = createListener(routes, options);
  const connections = new HttpConnections(service, (incoming, outgoing) => {
    try {
      checkOrigin(incoming, { host, names: options.names ?? [] });
    } catch (error) {
      sendError(outgoing, error, options);
      return;
    }
    void listener(incoming, outgoing);
  });
  const accessListener = access.onChange(() => {
    pendingClaims.revalidatePrincipals();
    eventStreams.revalidatePrincipals();
  });
  return {
    serverOptions: createServerOptions(service.limits.helloMs),
    connectionCounts: () => connections.counts,
    stats: () => ({ connections: connections.counts.open, waiting: pendingClaims.size, streams: eventStreams.count }),
    attach: (server) => connections.attach(server),
    drain() {
      isDraining = true;
      connections.drain();
      pendingClaims.drain();
      eventStreams.close();
    },
    close() {
      accessListener[Symbol.dispose]();
      eventStreams.close();
      pendingClaims.close();
    },
  };
}

const INVALID_TARGET = invalidField("target", "malformed", "the request target must be a path");

type HonoApp = Hono<{ Bindings: HttpBindings }>;

function createListener(
  routes: readonly Route[],
  options: HttpAppOptions,
): (incoming: IncomingMessage, outgoing: ServerResponse) => Promise<void> {
  const app: HonoApp = new Hono<{ Bindings: HttpBindings }>();
  const authenticator = new HttpAuthenticator(options.service, options.access);
  for (const route of routes) {
    app.on(route.method, route.path, ({ env }) =>
      handleRequest(route, env.incoming, env.outgoing, authenticator, options),
    );
  }
  for (const [path, allowed] of allowedMethods(routes)) {
    app.all(path, ({ env: { incoming, outgoing } }) => {
      if (incoming.method === "OPTIONS") outgoing.writeHead(204, { allow: allowed }).end();
      else
        sendError(
          outgoing,
          new Problem("METHOD", "method", `${path} supports only ${allowed}`, { allow: allowed }),
          options,
        );
      return RESPONSE_ALREADY_SENT;
    });
  }
  app.notFound(({ env }) => {
    sendError(env.outgoing, new Problem("NOT_FOUND", "path", "this path does not exist"), options);
    return RESPONSE_ALREADY_SENT;
  });
  app.onError((error, { env }) => {
    sendError(env.outgoing, error, options);
    return RESPONSE_ALREADY_SENT;
  });
  const logFailure = (error: unknown): void => options.service.log("a request failed", error);
  const listener = getRequestListener(app.fetch as Parameters<typeof getRequestListener>[0], {
    // without this the adapter replaces the global Request and Response of the complete process
    overrideGlobalObjects: false,
    errorHandler: () =>
      new Response(formatProblem(INVALID_TARGET), { status: 400, headers: formatProblemHeaders(INVALID_TARGET) }),
  });
  return (incoming, outgoing) => listener(incoming, outgoing).catch(logFailure);
}

/** The methods of each path, for 405 and OPTIONS. */
function allowedMethods(routes: readonly Route[]): ReadonlyMap<string, string> {
  const methodsByPath = new Map<string, string>();
  for (const { method, path } of routes) methodsByPath.set(path, `${method === "GET" ? "GET, HEAD" : method}, OPTIONS`);
  return methodsByPath;
}

async function handleRequest(
  route: Route,
  incoming: IncomingMessage,
  outgoing: ServerResponse,
  authenticator: HttpAuthenticator,
  options: HttpAppOptions,
): Promise<Response> {
  const address = incoming.socket.remoteAddress ?? "";
  const [disconnected, stopWatching] = watchDisconnect(incoming);
  try {
    const principal = authenticator.authenticate(route, incoming, address);
    const reply = await route.handle({ incoming, outgoing, principal, address, disconnected });
    if (reply !== null && !outgoing.destroyed) sendReply(outgoing, reply);
  } catch (error) {
    // an error caused by a client that has disconnected is not logged
    const isDisconnected = disconnected.aborted || (incoming.destroyed && !incoming.complete);
    if (!isDisconnected || toProblem(error) !== null) sendError(outgoing, error, options);
  } finally {
    stopWatching();
  }
  return RESPONSE_ALREADY_SENT;
}

function sendError(outgoing: ServerResponse, error: unknown, { service, metrics }: HttpAppOptions): void {
  const clientProblem = toProblem(error);
  if (clientProblem === null) service.log("a request failed", error);
  const problem = clientProblem ?? internalProblem();
  metrics.recordRefusal(problem.code);
  // the response has begun, so its status cannot change any more
  if (outgoing.headersSent) outgoing.destroy();
  else if (!outgoing.destroyed) sendProblem(outgoing, problem);
}
