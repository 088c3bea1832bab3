/** The calls of one connection, answered: frames in, replies out as each is ready. */

import * as frames from "../protocol/frames.ts";
import { ProtocolError } from "../protocol/hello.ts";
import type { Answer, ClaimId, ListFilter } from "../spi/driver.ts";
import type { Page, Soon } from "./backend.ts";
import { Refusal } from "./backend.ts";
import * as border from "./border.ts";
import type { Hub } from "./hub.ts";
import type { Link } from "./link.ts";
import type { Session } from "./session.ts";

export class Calls {
  readonly #hub: Hub;
  readonly #link: Link;
  /** `list` frames in this line. */
  #lists = 0;
  /** Those that have no answer yet. */
  #listing = 0;

  constructor(hub: Hub, link: Link) {
    this.#hub = hub;
    this.#link = link;
  }

  /** All frames of a line, behind its start id. @throws ProtocolError at the first that is malformed */
  line(session: Session, all: readonly unknown[]): void {
    this.#lists = 0;
    if (all.length - 1 > this.#hub.limits.frames) {
      throw new ProtocolError("LIMIT", `a line has at most ${this.#hub.limits.frames} frames`);
    }
    for (let at = 1; at < all.length && this.#link.isOpen; at++) {
      const frame = all[at];
      if (!Array.isArray(frame)) throw new ProtocolError("PROTOCOL", "a frame must be an array");
      try {
        this.#frame(session, frame as readonly unknown[]);
      } catch (error) {
        if (error instanceof ProtocolError) throw error;
        // the call's own affair
        this.#link.send(this.#errorText(frame[1] as number, error));
      }
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
        return this.#answer(n, backend.renew(session, items), (answers) => this.#answersText(items, answers));
      }
      case "release":
        return this.#answer(n, backend.release(session, border.leavesFrom(frame[2], limits)), frames.encodeFlags);
      case "detach":
        return this.#answer(n, backend.detach(session, border.idsFrom(frame[2], limits)), frames.encodeFlags);
      case "revoke":
        return this.#answer(n, backend.revoke(session, border.revocationsFrom(frame[2], limits)), frames.encodeFlags);
      case "list": {
        const [filter, max, after] = border.pageFrom(frame[2], frame[3], frame[4], limits);
        return this.#answer(n, this.#list(session, filter, max, after), encodePage);
      }
      case "reclaim": {
        const items = border.reclaimedFrom(frame[2], session.label, limits);
        const ids = items.map(({ claim }) => claim);
        const answers = backend.reclaim(session, items, frame[3] !== false);
        return this.#answer(n, answers, (told) => this.#answersText(ids, told));
      }
      case "ping":
        return this.#link.send(frames.encodeOk(n, "[]"));
      default:
        if (this.#hub.tools?.frame(this.#link, verb, n, frame) === true) return;
        throw new ProtocolError("PROTOCOL", "no such frame");
    }
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

function encodePage(page: Page): string {
  return `[[${page.views.map(frames.encodeView).join()}],${page.more}]`;
}
