/** The parts of a server, put together. Nothing listens yet. */

import type { Clock } from "../clock.ts";
import { newId } from "../ids.ts";
import { PROTOCOL, VERSION } from "../protocol/hello.ts";
import type { HostPort } from "./address.ts";
import type { Http } from "./http/http.ts";
import { Hub } from "./hub.ts";
import type { Log } from "./logging.ts";
import { Metrics } from "./metrics.ts";
import type { Plan } from "./plan.ts";
import { Ports } from "./ports.ts";
import { Record } from "./record.ts";
import { runsFolder } from "./run-files.ts";
import type { Readiness, ServeOptions } from "./serve.ts";
import type { Store } from "./store.ts";
import { openStore } from "./store.ts";
import type { Facts } from "./tools.ts";
import { createTools } from "./tools.ts";
import type { Web } from "./web.ts";
import { openWeb } from "./web.ts";

/** A server's parts. */
export interface Running {
  readonly store: Store;
  readonly hub: Hub;
  readonly ports: Ports;
  readonly record: Record;
  /** It grants nothing any more. */
  stopping: boolean;
  ready(): Readiness;
}

/** @throws StateError if the state cannot be used; whatever a driver throws when it is opened */
export async function assemble(options: ServeOptions, plan: Plan, clock: Clock, log: Log): Promise<Running> {
  const { access, limits, tls, http, addresses } = plan;
  const record = new Record({
    clock,
    mostSubscribers: limits.subscribers,
    mostOfAccount: limits.subscribersPerAccount,
  });
  let web: Http | null = null;
  const remote = http !== null || addresses.some((address) => !("path" in address));
  const socket = addresses.find((address) => "path" in address)?.path ?? null;
  const runsIn = runsFolder(options.state, socket);
  const metrics = new Metrics({
    record,
    version: VERSION,
    connections: () => hub.door,
    web: () => web?.connected() ?? null,
    authFailures: () => access.failures,
    sessions: () => store.sessions.all.size,
    claims: () => store.claims(),
    reclaimMs: () => store.backend.reclaimMs(),
  });
  const store: Store = await openStore(options, {
    clock,
    log,
    remote,
    limits,
    record,
    runsIn,
    wrote: (what, ok) => metrics.wrote(what, ok),
  });
  const start = newId().slice(0, 8);
  const startedAt = clock.now();
  const refused = (code: string): void => metrics.refused(code);
  const tools = createTools({
    record,
    mostWatches: limits.subscribersPerConnection,
    mostHistories: limits.lists,
    clock,
    facts: () => facts(),
    refused,
  });
  const { backend, sessions } = store;
  const common = { backend, sessions, clock, start, version: VERSION, log, access, limits, tools, refused };
  const hub = new Hub({ ...common, runsIn });
  const ports = new Ports(plan, hub, http === null ? null : () => webAt(http));
  const running: Running = { store, hub, ports, record, stopping: false, ready: () => readiness(running) };

  function facts(): Facts {
    const ready = running.ready();
    const claims = store.claims();
    return {
      version: VERSION,
      protocol: PROTOCOL,
      start,
      upMs: Math.round(clock.now() - startedAt),
      wallMs: Math.round(clock.wall()),
      reclaimMs: Math.ceil(backend.reclaimMs()),
      why: ready.ok ? "" : ready.why,
      store: options.driver?.name ?? "table",
      load: {
        connections: hub.door.inside,
        sessions: sessions.all.size,
        held: record.held,
        waiting: Math.max(claims - record.held, 0),
      },
    };
  }

  async function webAt(place: HostPort): Promise<Web> {
    const { createHttp } = await import("./http/http.ts");
    let certified = tls?.names ?? [];
    const made = createHttp({
      hub,
      access,
      record,
      metrics,
      ready: () => running.ready(),
      version: VERSION,
      host: place.host,
      get names() {
        return [...(options.httpNames ?? []), ...certified];
      },
    });
    web = made;
    const opened = await openWeb(place, made, tls);
    return {
      ...opened,
      secure(material) {
        certified = material.names;
        opened.secure(material);
      },
    };
  }
  return running;
}

function readiness({ stopping, store }: Running): Readiness {
  if (stopping) return { ok: false, why: "the server is stopping" };
  const trouble = store.trouble();
  if (trouble !== null) return { ok: false, why: trouble };
  const reclaimMs = store.backend.reclaimMs();
  if (reclaimMs === 0) return { ok: true };
  const left = Math.ceil(reclaimMs / 1_000);
  return { ok: false, why: `after an unclean start clients tell what they hold, for up to ${left} s more` };
}
