/** The events of one key as spans on a time axis, one row for each claim. */

import type { DashboardEvent, ListedClaim } from "../../gateway/dashboard/view-types.ts";
import { timeInState } from "./key-queue.ts";

/** A time in which a claim was in one state. Points in time are in milliseconds since 1970. */
export interface TimeSpan {
  readonly label: string;
  readonly from: number;
  readonly to: number;
  /** lost: its lock is lost, and the claim has not ended. */
  readonly kind: "waiting" | "held" | "lost";
}

/** What begins with an event; null: the claim has ended. */
const STATES: ReadonlyMap<string, TimeSpan["kind"]> = new Map<string, TimeSpan["kind"]>([
  ["waiting", "waiting"],
  ["granted", "held"],
  ["reclaimed", "held"],
  ["revoked", "lost"],
  ["maxHoldExceeded", "lost"],
]);

/** What is known of one claim. */
interface Course {
  readonly label: string;
  readonly spans: TimeSpan[];
  open: { readonly kind: TimeSpan["kind"]; readonly from: number } | null;
}

/**
 * The spans of the claims in these events, and of those in the queue now; the earliest first.
 * @param events of one key, the oldest first
 */
export function listSpans(
  events: readonly DashboardEvent[],
  queue: readonly ListedClaim[],
  now: number,
): readonly TimeSpan[] {
  const courses = new Map<string, Course>();
  for (const event of events) {
    const course = courses.get(event.tag) ?? { label: event.label, spans: [], open: null };
    courses.set(event.tag, course);
    closeSpan(course, event.at);
    const kind = STATES.get(event.kind) ?? null;
    course.open = kind === null ? null : { kind, from: event.at };
  }
  for (const claim of queue) {
    const course = courses.get(claim.tag) ?? { label: claim.label, spans: [], open: null };
    courses.set(claim.tag, course);
    course.open ??= { kind: claim.state, from: now - timeInState(claim) };
  }
  const present = new Set(queue.map(({ tag }) => tag));
  for (const [tag, course] of courses) {
    if (present.has(tag)) closeSpan(course, now);
  }
  return [...courses.values()].flatMap(({ spans }) => spans).sort((one, other) => one.from - other.from);
}

/** Of so many spans those that end last, and of these the earliest first: what is held now is always among them. */
export function selectLast(spans: readonly TimeSpan[], max: number): readonly TimeSpan[] {
  const latest = [...spans].sort((one, other) => other.to - one.to || one.from - other.from).slice(0, max);
  return latest.sort((one, other) => one.from - other.from);
}

function closeSpan(course: Course, at: number): void {
  if (course.open === null) return;
  const { kind, from } = course.open;
  course.spans.push({ label: course.label, kind, from, to: Math.max(from, at) });
  course.open = null;
}
