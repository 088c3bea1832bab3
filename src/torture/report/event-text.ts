/** The events of a history in words. */

import type { HistoryEvent, NemesisEvent, RegisterEvent, WorkerEvent } from "../history.ts";
import { formatMs } from "./format.ts";

export function describeEvent(event: HistoryEvent): string {
  switch (event.event) {
    case "run":
      return `the run of ${event.subject} on ${event.store} begins`;
    case "enter":
    case "write":
      return describeRegister(event);
    case "fault":
    case "worker":
    case "healed":
    case "stopping":
    case "leftovers":
    case "bystander":
      return describeNemesis(event);
    default:
      return describeWorker(event);
  }
}

function describeWorker(event: WorkerEvent): string {
  switch (event.event) {
    case "invoke":
      return `asks for ${event.keys.join(", ")}: ${event.kind}, waits at most ${formatMs(event.waitMs)}`;
    case "granted":
      return event.tokens === null ? "is granted it" : `is granted it: ${describeTokens(event.tokens)}`;
    case "asked":
      if (event.leftMs === 0) return "says that it does not hold it";
      return event.leftMs === null
        ? "says that it holds it"
        : `says that it holds it for ${formatMs(event.leftMs)} more`;
    case "lost":
      return `is told that it is lost: ${event.reason}`;
    case "releasing":
      return "begins to release it";
    case "released":
      if (event.wasHeld === null) return "failed to release it";
      return event.wasHeld ? "released it: it was held until then" : "released it: it was not held any more";
    case "refused":
      return `is not granted it: ${event.reason}`;
    case "unknown":
      return `failed, and may have been granted it: ${event.reason}`;
    case "kernel":
      return event.taken
        ? `finds the kernel's lock on the file of ${event.key} taken`
        : `takes the kernel's lock on the file of ${event.key}`;
    case "unlocked":
      return `gives the kernel's lock on the file of ${event.key} up`;
    case "unsupported":
      return `can never do operations of the kind ${event.kind}: ${event.reason}`;
    case "runs":
      return "runs";
  }
}

function describeTokens(tokens: Readonly<Record<string, string>>): string {
  return Object.entries(tokens)
    .map(([key, token]) => `token ${token} of ${key}`)
    .join(", ");
}

function describeRegister({ event, key, token, accepted, value }: RegisterEvent): string {
  const what = event === "enter" ? "enters" : "writes to";
  const by = token === null ? "without a token" : `with token ${token}`;
  return `${what} the register of ${key} ${by}: ${accepted ? "accepted" : "refused"}, its value was ${value}`;
}

function describeNemesis(event: NemesisEvent): string {
  switch (event.event) {
    case "fault": {
      const workers = event.workers === null ? "all workers" : `worker ${event.workers.join(", ")}`;
      return `fault ${event.fault} ${event.phase === "begin" ? "strikes" : "is repaired, for"} ${workers}`;
    }
    case "worker": {
      const reason = event.reason === "" ? "" : `: ${event.reason}`;
      return `worker ${event.worker} (process ${event.pid}) ${WORKER_PHASES[event.phase]}${reason}`;
    }
    case "healed":
      return "all faults are repaired, and none strikes any more";
    case "stopping":
      return "the workers begin nothing any more";
    case "leftovers":
      return event.count === null ? "the store cannot list its claims" : `${event.count} claims are left in the store`;
    case "bystander":
      return event.ms === null
        ? "another process could not lock another key"
        : `another process locked another key in ${formatMs(event.ms)}`;
  }
}

const WORKER_PHASES = { started: "starts", killed: "is killed", ended: "has ended" } as const;
