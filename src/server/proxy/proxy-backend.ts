/**
 * A backend that forwards claims to any driver; grants return by claim id. What survives a restart is up to the store. The
 * proxy only releases the claims of a client that has gone, where the store cannot notice that itself.
 *
 * Invariant: a claim without an owner leaves no entry in the store, even while its `claim` call is pending: its release is
 * sent at once, and repeated when that call has settled, and until the store has answered it.
 */

import type { Principal } from "../../auth/access-control.ts";
import { canAcquire, visibleKeys } from "../../auth/authorize.ts";
import { isFatalError } from "../../errors.ts";
import { withoutSuccessors } from "../../lock-table/successors.ts";
import type { ProcessProbe } from "../../os/process-info.ts";
import type { ReclaimItem } from "../../protocol/frames.ts";
import type {
  Answer,
  Claim,
  ClaimId,
  ClaimView,
  Driver,
  ListQuery,
  LockSpec,
  Page,
  Release,
  Traits,
} from "../../spi/driver.ts";
import type { Clock } from "../../util/clock.ts";
import { createSuspendAwareTime } from "../../util/suspend-detector.ts";
import type { EventLog } from "../events/event-log.ts";
import { recordRevocation } from "../events/event-log.ts";
import type { ServerLimits } from "../limits.ts";
import { DEFAULT_LIMITS } from "../limits.ts";
import type { Logger } from "../logger.ts";
import { RequestError } from "../request-error.ts";
import type { Backend, EndScope, OwnedClaim, ReleaseRequest, RenewRequest, RevokeRequest } from "../session/backend.ts";
import { truncatePage } from "../session/backend.ts";
import type { Session } from "../session/session.ts";
import { SessionRegistry } from "../session/session-registry.ts";
import type { ProxiedClaim } from "./proxied-claims.ts";
import { ProxiedClaims } from "./proxied-claims.ts";
import { ReleaseRetries } from "./release-retries.ts";
import { checkSupported, rejectUnixStore } from "./store-support.ts";
import { UpstreamHealth } from "./upstream-health.ts";

export interface ProxyBackendOptions {
  readonly driver: Driver;
  readonly clock: Clock;
  readonly sessionMs: number;
  readonly probe: ProcessProbe;
  readonly log: Logger;
  /**
   * Limits on claims in all, of a session and of an account; queues belong to the store. Default: the default limits.
   */
  readonly limits?: ServerLimits;
  /** Receives the events of all claims that pass through. */
  readonly eventLog?: EventLog;
}

/** Claims requested at a time while most of them are not visible. */
const LIST_BATCH = 1_000;
const NONE: Answer = { state: "none" };

/** Opens the driver and creates the backend. @throws (rejects) Error if the driver cannot be used behind a server */
export async function openProxyBackend(options: ProxyBackendOptions): Promise<{
  readonly backend: Backend;
  readonly sessions: SessionRegistry;
  close(): Promise<void>;
}> {
  const { driver, clock, sessionMs, probe } = options;
  const backend = new ProxyBackend(options);
  await backend.open();
  const sessions = new SessionRegistry(backend, clock, probe, sessionMs);
  return {
    backend,
    sessions,
    close: () => driver.close(),
  };
}

class ProxyBackend implements Backend {
  readonly isInProcess = false;
  readonly #driver: Driver;
  readonly #clock: Clock;
  /** For leases: it counts suspensions of this machine. */
  readonly #time: () => number;
  readonly #sessionMs: number;
  readonly #releaseRetries: ReleaseRetries;
  readonly #claims: ProxiedClaims;
  readonly #eventLog: EventLog | undefined;
  readonly #log: Logger;
  readonly #upstreamHealth: UpstreamHealth;
  /** Those of the store; set by open(). */
  #traits!: Traits;
  #onChange: () => void = () => undefined;

  constructor({ driver, clock, sessionMs, log, eventLog, limits = DEFAULT_LIMITS }: ProxyBackendOptions) {
    this.#driver = driver;
    this.#clock = clock;
    this.#time = createSuspendAwareTime(clock);
    this.#sessionMs = sessionMs;
    this.#eventLog = eventLog;
    this.#log = log;
    this.#upstreamHealth = new UpstreamHealth(driver, clock, log);
    this.#claims = new ProxiedClaims(driver, sessionMs, eventLog, limits);
    this.#releaseRetries = new ReleaseRetries(driver, clock, log, this.#claims);
  }

  get claimCount(): number {
    return this.#claims.size;
  }

  unhealthyReason(): string | null {
    return this.#upstreamHealth.unhealthyReason();
  }

  async open(): Promise<void> {
    const traits = await this.#driver.open({
      pushed: (id, answer) => this.#onAnswered(id, answer),
      recheck: (id) => this.#onChanged(id),
      disconnected: () => this.#onDisconnected(),
      reconnected: () => this.#onReconnected(),
      recalled: (id) => this.#onRecalled(id),
      heldTokens: (id) => this.#claims.heldTokens(id, this.#time()),
    });
    await rejectUnixStore(this.#driver, traits);
    this.#traits = traits;
  }

  #onAnswered(id: ClaimId, answer: Answer): void {
    const proxied = this.#claims.get(id);
    if (proxied === undefined) return;
    // applyAnswer() may remove the claim's session
    const { session } = proxied;
    this.#claims.applyAnswer(proxied, answer, this.#clock.now());
    if (session !== null) session.sink?.pushAnswer(id, this.#keepOwnSuccessors(answer, session));
    this.#onChange();
  }

  /** To the store all sessions are one client. The ids of other sessions' claims are secret, and a successor behind one is not next. */
  #keepOwnSuccessors(answer: Answer, session: Session): Answer {
    if (answer.state !== "held" || answer.successors === undefined) return answer;
    const foreignIndex = answer.successors.findIndex((id) => this.#claims.get(id)?.session !== session);
    if (foreignIndex === -1) return answer;
    if (foreignIndex === 0) return withoutSuccessors(answer);
    return { ...answer, successors: answer.successors.slice(0, foreignIndex) };
  }

  #onChanged(id: ClaimId): void {
    const proxied = this.#claims.get(id);
    if (proxied === undefined) return;
    proxied.session?.sink?.pushRecheck(id);
    this.#onChange();
  }

  #onRecalled(id: ClaimId): void {
    this.#claims.get(id)?.session?.sink?.pushRecalled(id);
    this.#onChange();
  }

  #onDisconnected(): void {
    const sessions = new Set(Array.from(this.#claims.all(), ({ session }) => session));
    for (const session of sessions) session?.sink?.pushDisconnected();
    this.#onChange();
  }

  #onReconnected(): void {
    this.#releaseRetries.retry();
    for (const { claim, session } of this.#claims.all()) session?.sink?.pushRecheck(claim.id);
  }

  onChange(listener: () => void): void {
    this.#onChange = listener;
  }

  traits(isLocal: boolean): Traits {
    // all clients of this server share one driver, so its list has their claims
    const { lease, list: _list, ...traits } = this.#traits;
    // a session of the store belongs to this process; our client's session is ended by us, and must not outlast it
    const sessionMs = Math.min(this.#sessionMs, lease.sessionMs ?? 0);
    const sessionTraits =
      lease.sessionMs === undefined ? {} : { sessionMs, ...(isLocal && { endsWithConnection: true }) };
    return { ...traits, lease: { claim: lease.claim, ...sessionTraits } };
  }

  recoveryRemainingMs(): number {
    return 0;
  }

  findClaim(id: ClaimId): OwnedClaim | undefined {
    return this.#claims.get(id);
  }

  arrivalOf(): number {
    return 0;
  }

  async claim(session: Session, claim: Claim): Promise<Answer> {
    this.#claims.checkQuotas(claim, session, this.#clock.now());
    const proxied = this.#track(session, claim, true);
    proxied.unansweredCalls++;
    const sentAt = this.#time();
    const answer = await this.#callStore(this.#driver.claim(proxied.claim));
    proxied.unansweredCalls--;
    if (proxied.state === "forgotten") {
      // meanwhile its client disconnected or released it, and has not claimed it again
      if (answer.state !== "none" && !this.#claims.get(claim.id)) this.#releaseRetries.release([proxied]);
      return NONE;
    }
    this.#claims.applyAnswer(proxied, answer, this.#clock.now());
    this.#claims.extendBelief(proxied, answer, sentAt);
    return answer;
  }

  /** isCreator: the session reports a claim that it created before a restart of this server. */
  async renew(
    session: Session,
    items: readonly RenewRequest[],
    isCreator = false,
  ): Promise<readonly (Answer | undefined)[]> {
    const renewed: ProxiedClaim[] = [];
    const tokenCounts: number[] = [];
    const proxiedClaims = items.map(({ id, claim, tokenCount = 0 }) => {
      const proxied = this.#claims.get(id) ?? (claim === null ? undefined : this.#track(session, claim, isCreator));
      if (proxied === undefined) return undefined;
      this.#claims.assignOwner(session, proxied, this.#clock.now());
      renewed.push(proxied);
      tokenCounts.push(tokenCount);
      return proxied;
    });
    if (renewed.length === 0) return proxiedClaims.map(() => NONE);
    const claims = renewed.map(({ claim }) => claim);
    const sentAt = this.#time();
    const answers = await this.#callStore(this.#driver.renew(claims, tokenCounts)).catch((error: unknown) => {
      this.#claims.dropUnconfirmed(renewed, this.#clock.now());
      throw error;
    });
    const now = this.#clock.now();
    for (const [index, proxied] of renewed.entries()) {
      const answer = answers[index];
      if (answer === undefined) continue;
      this.#claims.applyAnswer(proxied, answer, now);
      this.#claims.extendBelief(proxied, answer, sentAt);
    }
    let nextAnswer = 0;
    return proxiedClaims.map((proxied) => (proxied === undefined ? NONE : answers[nextAnswer++]));
  }

  async release(session: Session, items: readonly ReleaseRequest[]): Promise<readonly boolean[]> {
    const releasedClaims: ProxiedClaim[] = [];
    const releases: Release[] = [];
    const isKnownFlags = items.map((item) => {
      const proxied = this.#claims.get(item.id);
      if (proxied === undefined) return false;
      releasedClaims.push(proxied);
      const hasUnansweredClaim = item.unansweredTtl !== undefined || proxied.unansweredCalls > 0;
      releases.push({ claim: proxied.claim, hasUnansweredClaim });
      return true;
    });
    if (releasedClaims.length === 0) return isKnownFlags;
    const now = this.#clock.now();
    for (const proxied of releasedClaims) this.#claims.recordRelease(proxied, session, now);
    const results = await this.#callStore(this.#driver.release(releases));
    for (const proxied of releasedClaims) this.#claims.forget(proxied, "released", now);
    let nextResult = 0;
    return isKnownFlags.map((isKnown) => isKnown && (results[nextResult++] as boolean));
  }

  async detach(_session: Session, ids: readonly ClaimId[], remainingMs?: number): Promise<readonly boolean[]> {
    const proxiedClaims = ids.map((id) => this.#claims.get(id));
    const existing = proxiedClaims.filter((proxied) => proxied !== undefined);
    // where the store ties no claim to a session, detaching only concerns our own session
    const results =
      this.#driver.detach === undefined
        ? existing.map(({ state, isRevoked }) => state === "held" && !isRevoked)
        : await this.#callStore(
            this.#driver.detach(
              existing.map(({ claim }) => claim),
              remainingMs,
            ),
          );
    let nextResult = 0;
    return proxiedClaims.map((proxied) => {
      if (proxied === undefined || !results[nextResult++] || proxied.state === "forgotten") return false;
      this.#claims.clearOwner(proxied);
      return true;
    });
  }

  async revoke(session: Session, targets: readonly RevokeRequest[]): Promise<readonly boolean[]> {
    if (this.#driver.revoke === undefined) throw new RequestError("UNSUPPORTED", "this store cannot revoke");
    const results = await this.#callStore(this.#driver.revoke(targets));
    const now = this.#clock.now();
    const revokedTargets = targets.filter((_, index) => results[index] === true);
    const knownTargets = this.#claims.applyRevocations(revokedTargets, now);
    // the event log does not know claims that did not pass through here
    for (const target of revokedTargets)
      recordRevocation(target, session, this.#log, knownTargets.has(target) ? (this.#eventLog ?? null) : null);
    return results;
  }

  async list(session: Session, query: ListQuery, max: number, cursor: string | undefined): Promise<Page<ClaimView>> {
    const fetchPage = (count: number, after: string | undefined): Promise<Page<ClaimView>> =>
      this.#callStore(this.#driver.list(query, { max: count, after }));
    return listVisible(fetchPage, session.principal, max, cursor);
  }

  /** After a restart of this server: the store knows the claims, and the proxy learns them again. */
  reclaim(session: Session, items: readonly ReclaimItem[]): Promise<readonly (Answer | undefined)[]> {
    const requests = items.map(({ claim }) => ({ id: claim.id, claim }));
    return this.renew(session, requests, true);
  }

  endClaims(session: Session, scope: EndScope): void {
    const endingClaims = this.#claims.findEnding(session, scope, this.#clock.now());
    if (endingClaims.length === 0) return;
    this.#releaseRetries.release(endingClaims); // first: forget() drops what the driver needs for it
    for (const proxied of endingClaims) this.#claims.forget(proxied, "disconnected", this.#clock.now());
  }

  suspend(): void {
    // the store owns the queue; the entry is released when the session ends
  }

  resume(): void {
    // see suspend()
  }

  setSuspended(): void {
    // see suspend()
  }

  revalidateClaims(only?: Session): void {
    const withdrawn: ProxiedClaim[] = [];
    for (const proxied of only === undefined ? this.#claims.all() : this.#claims.ofSession(only)) {
      const { session, claim, state } = proxied;
      // the client of a removed credential may come back with another one of its account, and is judged then
      if (!session?.principal.isValid || canAcquire(session.principal, claim)) continue;
      session.sink?.pushRecheck(claim.id);
      if (state !== "held") withdrawn.push(proxied);
    }
    this.#releaseRetries.release(withdrawn); // first: forget() drops what the driver needs for it
    for (const proxied of withdrawn) this.#claims.forget(proxied, "removed", this.#clock.now());
  }

  hasClaims(session: Session): boolean {
    return this.#claims.ofSession(session).length > 0;
  }

  nextDueAt(): number {
    return Number.POSITIVE_INFINITY;
  }

  advance(): void {
    // the store expires leases by itself
  }

  endBatch(): void {
    // pushes are sent at once
  }

  /** @throws RequestError if another client uses that id, or the store does not support the claim */
  #track(session: Session, claim: Claim, isCreator: boolean): ProxiedClaim {
    const existing = this.#claims.get(claim.id);
    if (existing !== undefined && existing.session !== null && existing.session !== session) {
      throw new RequestError("LIMIT", "this id belongs to another client");
    }
    if (existing === undefined) checkSupported(claim, this.#traits);
    const now = this.#clock.now();
    const proxied = existing ?? this.#claims.add(claim, session.principal.name, now);
    if (isCreator) proxied.creator ??= session;
    this.#claims.assignOwner(session, proxied, now);
    return proxied;
  }

  /**
   * Calls the store. Its error goes only to the log: the client learns that the call failed, but not the store's
   * message.
   */
  async #callStore<T>(call: Promise<T>): Promise<T> {
    try {
      const answer = await call;
      this.#upstreamHealth.recordSuccess();
      this.#releaseRetries.retry();
      return answer;
    } catch (error) {
      // the error is the call's own fault
      if (isFatalError(error)) {
        this.#upstreamHealth.markSuspect();
        throw new RequestError("FATAL", (error as Error).message, error);
      }
      this.#upstreamHealth.recordFailure(error);
      throw new RequestError("STORE", `the server's call to its store failed (${this.#driver.name})`, error);
    }
  }
}

/** A page of those claims that the principal may see, of the store's claims. */
async function listVisible(
  fetchPage: (count: number, after: string | undefined) => Promise<Page<ClaimView>>,
  principal: Principal,
  max: number,
  firstCursor: string | undefined,
): Promise<Page<ClaimView>> {
  const canInspect = visibleKeys(principal);
  if (canInspect("")) {
    const page = await fetchPage(max, firstCursor);
    const shorterPage = truncatePage(page.items, max);
    return shorterPage.next === undefined ? page : shorterPage;
  }
  const visible: ClaimView[] = [];
  let cursor = firstCursor;
  do {
    const { items, next } = await fetchPage(LIST_BATCH, cursor);
    visible.push(...items.flatMap((view) => redactView(view, canInspect)));
    cursor = next;
  } while (cursor !== undefined && visible.length <= max);
  return truncatePage(visible, max);
}

/** The claim with only its visible keys; nothing if there are none. */
function redactView(view: ClaimView, canInspect: (key: string) => boolean): ClaimView[] {
  const [firstVisible, ...otherVisible] = view.locks.filter(({ key }) => canInspect(key));
  const locks: readonly [LockSpec, ...LockSpec[]] | null =
    firstVisible === undefined ? null : [firstVisible, ...otherVisible];
  return locks === null ? [] : [{ ...view, locks }];
}
