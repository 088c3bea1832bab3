/**
 * The calls of one connection, answered: frames in, replies out as each is ready. Frames are answered one after another,
 * and large ones in parts, so that whoever calls can stop between two of them and go on when others have been served.
 */

import type { Reclaimed } from "../protocol/frames.ts";
import * as frames from "../protocol/frames.ts";
import { ProtocolError } from "../protocol/hello.ts";
import type { Answer, ClaimId, ListFilter } from "../spi/driver.ts";
import type { Leave, Page, Soon } from "./backend.ts";
import { Refusal } from "./backend.ts";
import * as border from "./border.ts";
import type { Hub } from "./hub.ts";
import type { Link } from "./link.ts";
import type { Session } from "./session.ts";

type Answers = Soon<readonly (Answer | undefined)[]>;
type Flags = Soon<readonly boolean[]>;

/** Items of one frame that are seen to at a time: each may have as many keys as a claim may have. */
const PART = 64;
/** Likewise of a reclaim: each may be in conflict with all who hold its keys. */
const RECLAIM_PART = 1;
const NO_FRAMES: readonly unknown[] = [];
const ignore = (): void => undefined;

export class Calls {
  readonly #hub: Hub;
  readonly #link: Link;
  /** `list` frames in this line. */
  #lists = 0;
  /** Those that have no answer yet. */
  #listing = 0;
  /** The line that is being answered, and the place in it of the next frame. */
  #frames = NO_FRAMES;
  #next = 0;
  /** Sees to the next part of a frame; null: none is under way. */
  #part: (() => void) | null = null;

  constructor(hub: Hub, link: Link) {
    this.#hub = hub;
    this.#link = link;
  }

  /** Frames of a line, behind its start id, are to be answered by work(). @throws ProtocolError if there are too many */
  line(all: readonly unknown[]): void {
    this.#lists = 0;
    if (all.length - 1 > this.#hub.limits.frames) {
      throw new ProtocolError("LIMIT", `a line has at most ${this.#hub.limits.frames} frames`);
    }
    this.#frames = all;
    this.#next = 1;
  }

  /** Is something of a line still to be answered? */
  get isBusy(): boolean {
    return this.#part !== null || this.#next < this.#frames.length;
  }

  /** Goes on until all is answered, or time is over. @throws ProtocolError at the first frame that is malformed */
  work(session: Session, until: number): void {
    while (this.isBusy) {
      if (!this.#link.isOpen) return this.#stop();
      this.#step(session);
      if (this.isBusy && this.#hub.clock.now() >= until) return;
    }
    this.#frames = NO_FRAMES;
  }

  #stop(): void {
    this.#frames = NO_FRAMES;
    this.#part = null;
  }

  #step(session: Session): void {
    const frame = this.#frames[this.#part === null ? this.#next++ : this.#next - 1];
    if (!Array.isArray(frame)) throw new ProtocolError("PROTOCOL", "a frame must be an array");
    try {
      if (this.#part === null) this.#frame(session, frame as readonly unknown[]);
      else this.#part();
    } catch (error) {
      this.#part = null;
      if (error instanceof ProtocolError) throw error;
      // the call's own affair
      this.#link.send(this.#errorText(frame[1] as number, error));
    }
  }

  #frame(session: Session, frame: readonly unknown[]): void {
    const verb = frame[0];
    const n = border.numberFrom(frame[1]);
    const { backend, limits } = this.#hub;
    switch (verb) {
      case "claim": {
        const claim = border.claimFrom(frame, 2, session.label, limits);
        const answer = backend.claim(session, claim);
        if (answer instanceof Promise) return this.#later(n, answer, (late) => this.#answerText(claim.id, late));
        return this.#link.send(frames.encodeOk(n, this.#answerText(claim.id, answer)));
      }
      case "renew": {
        const items = border.renewalsFrom(frame[2], session.label, limits);
        const call = (part: typeof items): Answers => backend.renew(session, part);
        return this.#inParts(n, items, PART, call, (answers) => this.#answersText(items, answers));
      }
      case "release": {
        const call = (part: Leave[]): Flags => backend.release(session, part);
        return this.#inParts(n, border.leavesFrom(frame[2], limits), PART, call, frames.encodeFlags);
      }
      case "detach": {
        const leftMs = border.leftFrom(frame[3]);
        const call = (part: ClaimId[]): Flags => backend.detach(session, part, leftMs);
        return this.#inParts(n, border.idsFrom(frame[2], limits), PART, call, frames.encodeFlags);
      }
      case "revoke":
        return this.#answer(n, backend.revoke(session, border.revocationsFrom(frame[2], limits)), frames.encodeFlags);
      case "list": {
        const [filter, max, after] = border.pageFrom(frame[2], frame[3], frame[4], limits);
        return this.#answer(n, this.#list(session, filter, max, after), encodePage);
      }
      case "reclaim": {
        const items = border.reclaimedFrom(frame[2], session.label, limits);
        const ids = items.map(({ claim }) => claim);
        const call = this.#reclaimer(session, frame[3] !== false);
        return this.#inParts(n, items, RECLAIM_PART, call, (told) => this.#answersText(ids, told));
      }
      case "ping":
        return this.#link.send(frames.encodeOk(n, "[]"));
      default:
        if (this.#hub.tools?.frame(this.#link, verb, n, frame) === true) return;
        throw new ProtocolError("PROTOCOL", "no such frame");
    }
  }

  /** Answers a frame when each part of its items has been seen to. */
  #inParts<T, R>(
    n: number,
    items: T[],
    size: number,
    call: (part: T[], isLast: boolean) => Soon<readonly R[]>,
    encode: (results: readonly R[]) => string,
  ): void {
    if (items.length <= size || !this.#hub.backend.isOurs) return this.#answer(n, call(items, true), encode);
    const results: Soon<readonly R[]>[] = [];
    let from = 0;
    this.#part = () => {
      const part = items.slice(from, from + size);
      from += size;
      const result = call(part, from >= items.length);
      // it may fail before anybody asks how it went
      if (result instanceof Promise) result.catch(ignore);
      results.push(result);
      if (from < items.length) return;
      this.#part = null;
      this.#answer(n, joined(results), encode);
    };
  }

  /** That a session has told all is passed on when all of it has been taken back. */
  #reclaimer(session: Session, last: boolean): (part: Reclaimed[], isLast: boolean) => Answers {
    const { backend } = this.#hub;
    const writes: Promise<unknown>[] = [];
    const take = (part: Reclaimed[], isAll: boolean): Answers => {
      if (isAll) session.returning = false;
      return backend.reclaim(session, part, isAll);
    };
    return (part, isLast) => {
      if (isLast && writes.length > 0) return Promise.all(writes).then(() => take(part, last));
      const answers = take(part, isLast && last);
      if (answers instanceof Promise) writes.push(answers);
      return answers;
    };
  }

  #list(session: Session, filter: ListFilter, max: number, after: string | undefined): Soon<Page> {
    const { lists } = this.#hub.limits;
    if (++this.#lists > lists || this.#listing >= lists) throw new Refusal("LIMIT", `at most ${lists} lists at a time`);
    const page = this.#hub.backend.list(session, filter, max, after);
    if (!(page instanceof Promise)) return page;
    this.#listing++;
    return page.finally(() => {
      this.#listing--;
    });
  }

  /** Answers at once if the result is there, else when it is. */
  #answer<T>(n: number, result: Soon<T>, encode: (result: T) => string): void {
    if (result instanceof Promise) this.#later(n, result, encode);
    else this.#link.send(frames.encodeOk(n, encode(result)));
  }

  #later<T>(n: number, result: Promise<T>, encode: (result: T) => string): void {
    const link = this.#link;
    result.then(
      (late) => {
        link.send(frames.encodeOk(n, encode(late)));
        this.#hub.settle();
      },
      (error: unknown) => {
        link.send(this.#errorText(n, error));
        this.#hub.settle();
      },
    );
  }

  #errorText(n: number, error: unknown): string {
    this.#hub.refused(error instanceof Refusal ? error.code : "INTERNAL");
    if (error instanceof Refusal) return frames.encodeError(n, error.code, error.message);
    this.#hub.log("a call failed", error);
    return frames.encodeError(n, "INTERNAL", "the server failed; see its log");
  }

  #answerText(id: ClaimId, answer: Answer): string {
    return frames.encodeAnswer(answer, answer.state === "waiting" ? this.#hub.backend.arrivalOf(id) : 0);
  }

  #answersText(claims: readonly { readonly id: ClaimId }[], answers: readonly (Answer | undefined)[]): string {
    let text = "";
    for (const [at, answer] of answers.entries()) {
      if (at > 0) text += ",";
      text += answer === undefined ? "null" : this.#answerText((claims[at] as { id: ClaimId }).id, answer);
    }
    return `[${text}]`;
  }
}

/** The results of all parts, as if there had been one. */
function joined<R>(results: readonly Soon<readonly R[]>[]): Soon<readonly R[]> {
  if (results.some((result) => result instanceof Promise)) {
    return Promise.all(results.map((result) => Promise.resolve(result))).then((all) => all.flat());
  }
  return (results as (readonly R[])[]).flat();
}

function encodePage(page: Page): string {
  return `[[${page.views.map(frames.encodeView).join()}],${page.more}]`;
}
