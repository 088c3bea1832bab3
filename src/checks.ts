/** Options of a driver, checked when it is made, since they may come from JavaScript: a mistyped one must not mean the default. */

import { shown } from "./duration.ts";

/** For each option: what it must be, or null if the value is that; a check may also throw a TypeError of its own. */
export type Checks<O> = { readonly [Name in keyof O]-?: (value: unknown) => string | null };

interface Which<O> {
  readonly needed?: readonly (keyof O)[];
  readonly secret?: readonly (keyof O)[];
  readonly within?: string;
}

/**
 * @param of whose options, as messages name it
 * @param needed options that have no default
 * @param secret options whose values are not shown
 * @param within what stands before their names in messages, where they are an option's own
 * @throws TypeError naming the option that is wrong, or missing, or none
 */
export function checkOptions<O extends object>(
  of: string,
  options: O,
  checks: Checks<O>,
  { needed = [], secret = [], within = "" }: Which<O> = {},
): void {
  if (!isObject(options)) throw new TypeError(`options of ${of} must be an object, not ${shown(options)}`);
  for (const name of Object.keys(options)) {
    if (!Object.hasOwn(checks, name)) throw new TypeError(`${of} has no option ${shown(name)}`);
  }
  for (const name of Object.keys(checks) as (keyof O & string)[]) {
    const value = options[name];
    if (value === undefined && !needed.includes(name)) continue;
    const must = checks[name](value);
    // a credential may stand where a list of them should
    const given = secret.includes(name) ? "" : `, not ${shown(value)}`;
    if (must !== null) throw new TypeError(`${within}${name} must be ${must}${given}`);
  }
}

/** The longest time that a timer can wait. */
const MOST_MS = 2 ** 31 - 1;

/** A whole number of milliseconds within bounds that a timer can keep. */
export const milliseconds =
  (least = 1, most: number = MOST_MS): ((value: unknown) => string | null) =>
  (value) =>
    isWhole(value, least, most) ? null : `a whole number of milliseconds from ${least} to ${most}`;
/** true or false. */
export const isFlag = (value: unknown): string | null => (typeof value === "boolean" ? null : "true or false");
/** A function. */
export const isFunction = (value: unknown): string | null => (typeof value === "function" ? null : "a function");
/** A string. */
export const isText = (value: unknown): string | null => (typeof value === "string" ? null : "a text");
/** A Clock, known by its timer(). */
export const isClock = (value: unknown): string | null => (isObject(value) && "timer" in value ? null : "a clock");

/** Whatever checked it has not thrown. */
export function right(_checked: unknown): null {
  return null;
}

/** An object that is no array. */
export function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** A whole number from `least` to `most`. */
export function isWhole(value: unknown, least: number, most: number): boolean {
  return typeof value === "number" && Number.isInteger(value) && value >= least && value <= most;
}
