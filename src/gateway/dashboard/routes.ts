/**
 * The routes below /ui: the files of the pages, the sessions of viewers, and the data of the views (view-types.ts). They
 * are for the pages of this gateway alone and not a part of the HTTP API, which other programs use.
 *
 * Invariants: without a session only the files and the sign-in are served, and they say nothing about locks. A session is
 * its cookie together with its secret in a header: browsers send the cookie to every port of this host, and no foreign page
 * can set the header. Each answer contains only what the account may see. A request that changes something has the Origin
 * of this server, too (origin-check.ts refuses any other).
 */

import type { Hono, MiddlewareHandler } from "hono";
import { deleteCookie, setCookie } from "hono/cookie";
import type { AccessControl, Principal } from "../../auth/access-control.ts";
import { ANONYMOUS, AUTH_FAILED } from "../../auth/access-control.ts";
import { visibleKeys } from "../../auth/authorize.ts";
import { selectVisible } from "../../auth/visible-page.ts";
import { PACKAGE_VERSION } from "../../protocol/handshake.ts";
import { drainingError } from "../../server/request-error.ts";
import { toClaimInfo } from "../../spi/claim-info.ts";
import type { ClaimView } from "../../spi/driver.ts";
import type { HttpContext, HttpEnv } from "../http/context.ts";
import { jsonResponse, parseListQuery, parseQuery, readBody } from "../http/context.ts";
import { parseLastEventId } from "../http/event-stream.ts";
import { isEncrypted } from "../http/origin-check.ts";
import { Problem } from "../http/problem.ts";
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
/** So that a slow reader receives complete messages. */
const EVENTS_PER_MESSAGE = 100;
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
  app.get("/ui/session/methods", (c) => routes.methods(c));
  app.post("/ui/session", requireOrigin, (c) => routes.signIn(c));
  app.delete("/ui/session", signedIn, requireOrigin, (c) => routes.signOut(c));
  app.get("/ui/api/overview", signedIn, (c) => routes.overview(c));
  app.get("/ui/api/claims", signedIn, (c) => routes.claims(c));
  app.get("/ui/api/history", signedIn, (c) => routes.history(c));
  app.get("/ui/api/store", signedIn, (c) => routes.store(c));
  app.get("/ui/api/events", signedIn, (c) => routes.events(c));
  app.post("/ui/api/revoke", signedIn, requireOrigin, (c) => routes.revoke(c));
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

  /** Sets `principal`. @throws Problem AUTH */
  readonly requireViewer: MiddlewareHandler<HttpEnv> = async (c, next) => {
    const { dashboard, service } = this.#options;
    if (service.isDraining) throw drainingError();
    c.set("principal", this.#findViewer(c));
    dashboard.watch();
    await next();
  };

  /** @throws Problem AUTH */
  #findViewer(c: HttpContext): Principal {
    const { sessions } = this.#options.dashboard;
    const secret = c.env.incoming.headers[SECRET_HEADER];
    // another program of this host may have set a cookie with the same name
    const found = readCookies(c).flatMap((cookie) => sessions.find(cookie) ?? []);
    const viewer = found.find((one) => one.hasSecret(typeof secret === "string" ? secret : undefined));
    if (viewer === undefined) throw new Problem("AUTH", "session", "there is no session, or it has ended: sign in");
    return viewer.principal;
  }

  methods(c: HttpContext): Response {
    const methods: views.SessionMethods = { accounts: this.#options.access.isRequired };
    return jsonResponse(c, methods);
  }

  async signIn(c: HttpContext): Promise<Response> {
    const request = parseSessionRequest(await readBody(c, MAX_BODY_BYTES));
    const { sessions } = this.#options.dashboard;
    const { cookie, secret } = sessions.open(this.#authenticate(request, c));
    setCookie(c, cookieName(c), cookie, {
      ...{ path: "/ui", httpOnly: true, sameSite: "Strict", maxAge: SESSION_MS / 1_000 },
      secure: isEncrypted(c.env.incoming),
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
    for (const cookie of readCookies(c)) this.#options.dashboard.sessions.end(cookie);
    deleteCookie(c, cookieName(c), { path: "/ui" });
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
    const principal = c.get("principal");
    const listQuery = parseListQuery(query);
    const listing = await this.#options.dashboard.sampler.read(listQuery, principal);
    const paused = this.#options.dashboard.pause();
    const isUnchanged = query.get("after") === `${listing.sequence}`;
    if (isUnchanged && listing.failure === null && paused === null) return c.body(null, 204);
    const { sequence, readAt, intervalMs, isComplete, failure } = listing;
    const ageMs = Math.round(clock.now() - readAt);
    const { key } = listQuery;
    const seen = selectVisible(listing.views, listQuery, visibleKeys(principal));
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
    const { samples, history, startedAt } = this.#options.dashboard;
    // figures of all keys
    const canSee = c.get("principal").can("inspect", "");
    const body: views.History = {
      since: samples.samples[0]?.at ?? startedAt,
      samples: canSee ? samples.samples : [],
      origin: history.origin,
      waits: canSee ? history.waits : null,
      holds: canSee ? history.holds : null,
    };
    return jsonResponse(c, body);
  }

  async store(c: HttpContext): Promise<Response> {
    const { dashboard, service } = this.#options;
    const { traits } = await service.store.describe();
    // they count keys and clients of all
    const checks = c.get("principal").can("inspect", "") ? await dashboard.checks() : null;
    const report: views.StoreReport = {
      traits,
      checks,
      facts: [
        { name: "Store", value: dashboard.options.storeName },
        { name: "Holdfast", value: PACKAGE_VERSION },
        { name: "Node.js", value: process.versions.node },
        { name: "Run of the gateway", value: service.runId },
      ],
    };
    return jsonResponse(c, report);
  }

  /** The events that are kept, and each new one. The id of a message is that of its last event. */
  events(c: HttpContext): Response {
    const { dashboard, streams, service } = this.#options;
    const { history, sampler } = dashboard;
    const { runId: run } = service;
    const principal = c.get("principal");
    const key = parseQuery(c, ["key"]).get("key");
    const start: views.EventsStart = {
      ...{ run, since: history.since, origin: history.origin, intervalMs: sampler.intervalMs },
    };
    let head = `event: start\ndata: ${JSON.stringify(start)}\n\n`;
    let [last = 0] = parseLastEventId(c.env.incoming.headers["last-event-id"], run);
    const next = (): string => {
      const text = head;
      head = "";
      if (text !== "") return text;
      while (this.#isViewer(c)) {
        const events = history.after(last, EVENTS_PER_MESSAGE);
        const newest = events.at(-1);
        if (newest === undefined) break;
        last = newest.sequence;
        const visible = toVisibleEvents(events, principal, key);
        if (visible.length > 0) return `id: ${run}-${last}\nevent: events\ndata: ${JSON.stringify(visible)}\n\n`;
      }
      return "";
    };
    return streams.openPaced(c, principal, next, (notify) => history.subscribe(notify));
  }

  /** The session of a stream may have ended. */
  #isViewer(c: HttpContext): boolean {
    try {
      return this.#findViewer(c).isValid;
    } catch {
      return false;
    }
  }

  async revoke(c: HttpContext): Promise<Response> {
    const { dashboard, service } = this.#options;
    const principal = c.get("principal");
    if (dashboard.options.isReadOnly === true)
      throw new Problem("FORBIDDEN", "readOnly", "the dashboard was started with --read-only");
    const target = parseRevokeRequest(await readBody(c, MAX_BODY_BYTES));
    // the viewer may have signed out while the body arrived
    this.#findViewer(c);
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

/** Gateways of one host share its cookies, whatever their ports are: those that the browser sees. */
function cookieName({ env: { incoming } }: HttpContext): string {
  const { host = "" } = incoming.headers;
  return `holdfast-${/:(\d+)$/.exec(host)?.[1] ?? "ui"}`;
}

/** The cookies of that name, of which there may be several with different paths. */
function readCookies(c: HttpContext): readonly string[] {
  const beginning = `${cookieName(c)}=`;
  const all = (c.env.incoming.headers.cookie ?? "").split(";").map((cookie) => cookie.trim());
  return all.flatMap((cookie) => (cookie.startsWith(beginning) ? [cookie.slice(beginning.length)] : []));
}

/**
 * For requests that change something: a browser sends an Origin with them, and origin-check.ts has refused any other than
 * that of this server. @throws Problem FORBIDDEN without one
 */
const requireOrigin: MiddlewareHandler<HttpEnv> = async (c, next) => {
  if (c.env.incoming.headers.origin === undefined)
    throw new Problem("FORBIDDEN", "origin", "only the pages of this gateway may send this request");
  await next();
};

function toListedClaim(view: ClaimView): views.ListedClaim {
  const { token, ...info } = toClaimInfo(view);
  const { ttlMs } = view;
  return { ...info, token: token === null ? null : String(token), ...(ttlMs !== "session" && { leaseMs: ttlMs }) };
}
