/**
 * The routes below /ui: the files of the pages, the sessions of viewers, and the data of the views (view-types.ts). They
 * are for the pages of this gateway alone and not a part of the HTTP API, which other programs use.
 *
 * Invariants: without a session only the files and the sign-in are served, and they say nothing about locks. Each answer
 * contains only what the account may see. A request that changes something has the cookie, the Origin of this server
 * (origin-check.ts refuses any other), and the secret of the session in a header, which no foreign page can set.
 */

import type { Hono, MiddlewareHandler } from "hono";
import { deleteCookie, getCookie, setCookie } from "hono/cookie";
import type { AccessControl, Principal } from "../../auth/access-control.ts";
import { ANONYMOUS, AUTH_FAILED } from "../../auth/access-control.ts";
import { visibleKeys } from "../../auth/authorize.ts";
import { redactView } from "../../auth/visible-page.ts";
import { PACKAGE_VERSION } from "../../protocol/handshake.ts";
import { drainingError } from "../../server/request-error.ts";
import { toClaimInfo } from "../../spi/claim-info.ts";
import type { ClaimView, ListQuery } from "../../spi/driver.ts";
import type { HttpContext, HttpEnv } from "../http/context.ts";
import { jsonResponse, parseQuery, readBody } from "../http/context.ts";
import { invalidField, Problem } from "../http/problem.ts";
import { revokeLock } from "../http/revocation.ts";
import { parseRevokeRequest, parseSessionRequest } from "../http/schemas.ts";
import type { SentEvents } from "../http/sent-events.ts";
import type { GatewayService } from "../service.ts";
import type { Dashboard } from "./dashboard.ts";
import { findPageFile, PAGE } from "./page-files.ts";
import type * as views from "./view-types.ts";
import { SESSION_MS } from "./viewer-sessions.ts";
import { toVisibleEvents } from "./visible-events.ts";

/** What the pages may load: their own files, and nothing from elsewhere. Charts set styles of elements by script alone. */
const PAGE_POLICY =
  "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
/** The name of each file contains the hash of its text. */
const FILE_CACHE = "public, max-age=31536000, immutable";
const SECRET_HEADER = "holdfast-ui";
/** A body is a key, a reason and a token, or a credential. */
const MAX_BODY_BYTES = 16_384;

export interface DashboardRoutesOptions {
  readonly service: GatewayService;
  readonly access: AccessControl;
  readonly dashboard: Dashboard;
  readonly streams: SentEvents;
  /** The principal of a credential. @throws as AccessControl.authenticate(), as a Problem */
  readonly authenticate: (credential: string, c: HttpContext) => Principal;
}

/** Adds the routes to the app. */
export function addDashboardRoutes(app: Hono<HttpEnv>, options: DashboardRoutesOptions): void {
  const routes = new DashboardRoutes(options);
  const signedIn = routes.requireViewer;
  const change = routes.requireSecret;
  app.get("/ui/session/methods", (c) => routes.methods(c));
  app.post("/ui/session", (c) => routes.signIn(c));
  app.delete("/ui/session", signedIn, change, (c) => routes.signOut(c));
  app.get("/ui/api/overview", signedIn, (c) => routes.overview(c));
  app.get("/ui/api/claims", signedIn, (c) => routes.claims(c));
  app.get("/ui/api/history", signedIn, (c) => routes.history(c));
  app.get("/ui/api/store", signedIn, (c) => routes.store(c));
  app.get("/ui/api/events", signedIn, (c) => routes.events(c));
  app.post("/ui/api/revoke", signedIn, change, (c) => routes.revoke(c));
  app.all("/ui/api/*", () => {
    throw new Problem("NOT_FOUND", "path", "this path does not exist");
  });
  app.get("/ui/assets/:name", (c) => routes.file(c, c.req.param("name")));
  app.get("/ui", (c) => routes.page(c));
  app.get("/ui/*", (c) => routes.page(c));
}

class DashboardRoutes {
  readonly #options: DashboardRoutesOptions;

  constructor(options: DashboardRoutesOptions) {
    this.#options = options;
  }

  /** Sets `viewer`. @throws Problem AUTH */
  readonly requireViewer: MiddlewareHandler<HttpEnv> = async (c, next) => {
    const { dashboard, service } = this.#options;
    if (service.isDraining) throw drainingError();
    const cookie = getCookie(c, cookieName(c));
    const viewer = cookie === undefined ? null : dashboard.sessions.find(cookie);
    if (viewer === null) throw new Problem("AUTH", "session", "there is no session, or it has ended: sign in");
    c.set("viewer", viewer);
    c.set("principal", viewer.principal);
    dashboard.watch();
    await next();
  };

  /** @throws Problem FORBIDDEN unless a page of this server sends the request */
  readonly requireSecret: MiddlewareHandler<HttpEnv> = async (c, next) => {
    requireOrigin(c);
    if (!c.get("viewer").hasSecret(c.env.incoming.headers[SECRET_HEADER] as string | undefined))
      throw new Problem("FORBIDDEN", "secret", `the header ${SECRET_HEADER} is not that of this session`);
    await next();
  };

  methods(c: HttpContext): Response {
    const methods: views.SessionMethods = { accounts: this.#options.access.isRequired };
    return jsonResponse(c, methods);
  }

  async signIn(c: HttpContext): Promise<Response> {
    requireOrigin(c);
    const request = parseSessionRequest(await readBody(c, MAX_BODY_BYTES));
    const { sessions } = this.#options.dashboard;
    const { cookie, secret } = sessions.open(this.#authenticate(request, c));
    setCookie(c, cookieName(c), cookie, {
      ...{ path: "/ui", httpOnly: true, sameSite: "Strict", maxAge: SESSION_MS / 1_000 },
      secure: isEncrypted(c),
    });
    const session: views.Session = { secret, expiresInMs: SESSION_MS };
    return jsonResponse(c, session);
  }

  #authenticate(request: views.SessionRequest, c: HttpContext): Principal {
    const { access, dashboard, authenticate } = this.#options;
    if ("credential" in request) {
      if (access.isRequired) return authenticate(request.credential, c);
    } else if (!access.isRequired && dashboard.sessions.useStartToken(request.start)) return ANONYMOUS;
    else throw new Problem("AUTH", "start", "this link was used before, or is older than 60 s");
    throw new Problem("AUTH", "credential", AUTH_FAILED);
  }

  signOut(c: HttpContext): Response {
    const cookie = deleteCookie(c, cookieName(c), { path: "/ui" });
    if (cookie !== undefined) this.#options.dashboard.sessions.end(cookie);
    return c.body(null, 204);
  }

  async overview(c: HttpContext): Promise<Response> {
    const { dashboard, service } = this.#options;
    const principal = c.get("principal");
    const { traits } = await service.store.describe();
    const revokeRefusal = await this.#findRevokeRefusal();
    const overview: views.Overview = {
      store: dashboard.options.storeName,
      version: PACKAGE_VERSION,
      startedAt: dashboard.startedAt,
      account: principal.name,
      canRevoke: revokeRefusal === null,
      revokeRefusal,
      seesAllKeys: principal.can("inspect", ""),
      fencing: traits.fencing,
    };
    return jsonResponse(c, overview);
  }

  async claims(c: HttpContext): Promise<Response> {
    const { clock } = this.#options.service;
    const query = parseQuery(c, ["prefix", "key", "after"]);
    const listing = await this.#options.dashboard.sampler.read(toListQuery(query));
    const paused = this.#options.dashboard.options.pause();
    const isUnchanged = query.get("after") === `${listing.sequence}`;
    if (isUnchanged && listing.failure === null && paused === null) return c.body(null, 204);
    const { sequence, readAt, intervalMs, isComplete, failure } = listing;
    const ageMs = Math.round(clock.now() - readAt);
    const principal = c.get("principal");
    const key = query.get("key");
    const canSee = visibleKeys(principal);
    const seen = canSee("") ? listing.views : listing.views.flatMap((view) => redactView(view, canSee));
    const reading: views.Reading = {
      ...{ sequence, ageMs, intervalMs, isComplete, failure },
      claims: seen.map(toListedClaim),
      paused,
      revokeRefusal: key === undefined ? null : await this.#findKeyRefusal(principal, key),
    };
    return jsonResponse(c, reading);
  }

  /** Why nothing can be revoked from the pages; null: it can. */
  async #findRevokeRefusal(): Promise<string | null> {
    const { dashboard, service } = this.#options;
    if (dashboard.options.isReadOnly === true) return "The dashboard was started with --read-only.";
    const { driver } = await service.store.describe();
    return driver.revoke === undefined ? "This store cannot revoke." : null;
  }

  async #findKeyRefusal(principal: Principal, key: string): Promise<string | null> {
    const refusal = await this.#findRevokeRefusal();
    if (refusal !== null || principal.can("revoke", key)) return refusal;
    return "This account may not revoke locks on this key.";
  }

  history(c: HttpContext): Response {
    const { samples, history, startedAt, options } = this.#options.dashboard;
    // figures of all keys
    const canSee = c.get("principal").can("inspect", "");
    const body: views.History = {
      since: samples.samples[0]?.at ?? startedAt,
      samples: canSee ? samples.samples : [],
      origin: options.events.origin,
      waits: canSee ? history.waits : null,
      holds: canSee ? history.holds : null,
    };
    return jsonResponse(c, body);
  }

  async store(c: HttpContext): Promise<Response> {
    const { dashboard, service } = this.#options;
    const { traits } = await service.store.describe();
    const made = await dashboard.checks();
    const report: views.StoreReport = {
      traits,
      checks: made?.checks ?? null,
      facts: [
        { name: "Store", value: dashboard.options.storeName },
        { name: "Holdfast", value: PACKAGE_VERSION },
        { name: "Node.js", value: process.versions.node },
        { name: "Run of the gateway", value: service.runId },
      ],
    };
    return jsonResponse(c, report);
  }

  events(c: HttpContext): Response {
    const { dashboard, streams } = this.#options;
    const principal = c.get("principal");
    const { history, sampler, options } = dashboard;
    const start: views.EventsStart = {
      since: history.since,
      origin: options.events.origin,
      intervalMs: sampler.intervalMs,
    };
    const key = parseQuery(c, ["key"]).get("key");
    const lastSequence = Number(c.env.incoming.headers["last-event-id"] ?? 0);
    const format = (events: readonly views.DashboardEvent[]): string =>
      formatEvents(toVisibleEvents(events, principal, key));
    const welcome = `event: start\ndata: ${JSON.stringify(start)}\n\n${format(history.after(lastSequence || 0))}`;
    return streams.open(c, principal, welcome, (write) =>
      history.subscribe((events) => {
        // a session that has ended reads nothing more
        const cookie = getCookie(c, cookieName(c));
        const text = cookie !== undefined && dashboard.sessions.find(cookie) !== null ? format(events) : "";
        if (text !== "") write(text);
      }),
    );
  }

  async revoke(c: HttpContext): Promise<Response> {
    const { dashboard, service } = this.#options;
    const principal = c.get("principal");
    if (dashboard.options.isReadOnly === true)
      throw new Problem("FORBIDDEN", "readOnly", "the dashboard was started with --read-only");
    const target = parseRevokeRequest(await readBody(c, MAX_BODY_BYTES));
    await revokeLock(service, principal, target);
    dashboard.recordRevocation(target, principal);
    return jsonResponse(c, {});
  }

  page(c: HttpContext): Response {
    return this.file(c, PAGE);
  }

  /** @throws Problem NOT_FOUND */
  file(c: HttpContext, name: string): Response {
    const found = findPageFile(name);
    if (found === undefined) throw new Problem("NOT_FOUND", "path", "this path does not exist");
    return c.body(found.body, 200, {
      "content-type": found.type,
      "content-security-policy": PAGE_POLICY,
      "cache-control": name === PAGE ? "no-cache" : FILE_CACHE,
    });
  }
}

/** Gateways of one host share its cookies, whatever their ports are. */
function cookieName({ env }: { readonly env: HttpEnv["Bindings"] }): string {
  return `holdfast-${env.incoming.socket.localPort ?? 0}`;
}

function isEncrypted({ env }: HttpContext): boolean {
  return "encrypted" in env.incoming.socket;
}

/** A browser sends it with every such request; origin-check.ts has refused any other than that of this server. */
function requireOrigin({ env }: { readonly env: HttpEnv["Bindings"] }): void {
  if (env.incoming.headers.origin === undefined)
    throw new Problem("FORBIDDEN", "origin", "only the pages of this gateway may send this request");
}

function toListQuery(query: ReadonlyMap<string, string>): ListQuery {
  const [prefix, key] = [query.get("prefix"), query.get("key")];
  if (key === undefined) return { prefix: prefix ?? "" };
  if (prefix === undefined) return { key };
  throw invalidField("key", "conflict", "give prefix or key, not both");
}

function toListedClaim(view: ClaimView): views.ListedClaim {
  const { token, ...info } = toClaimInfo(view);
  const { ttlMs } = view;
  return { ...info, token: token === null ? null : String(token), ...(ttlMs !== "session" && { leaseMs: ttlMs }) };
}

function formatEvents(events: readonly views.DashboardEvent[]): string {
  const last = events.at(-1);
  return last === undefined ? "" : `id: ${last.sequence}\nevent: events\ndata: ${JSON.stringify(events)}\n\n`;
}
