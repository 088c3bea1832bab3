/** Options of a driver, checked when it is made, since they may come from JavaScript: a mistyped one must not mean the default. */

import { describeValue } from "./duration.ts";

/** For each option: what it must be, or null if the value is that; a check may also throw a TypeError of its own. */
export type OptionRules<O> = { readonly [Name in keyof O]-?: (value: unknown) => string | null };

interface RuleOptions<O> {
  readonly required?: readonly (keyof O)[];
  readonly secret?: readonly (keyof O)[];
  readonly prefix?: string;
}

/**
 * @param subject whose options, as messages name it
 * @param needed options that have no default
 * @param secret options whose values are not shown
 * @param within what stands before their names in messages, where they are an option's own
 * @throws TypeError naming the option that is wrong, or missing, or none
 */
export function validateOptions<O extends object>(
  subject: string,
  options: O,
  rules: OptionRules<O>,
  { required = [], secret = [], prefix = "" }: RuleOptions<O> = {},
): void {
  if (!isObject(options)) throw new TypeError(`options of ${subject} must be an object, not ${describeValue(options)}`);
  for (const name of Object.keys(options)) {
    if (!Object.hasOwn(rules, name)) throw new TypeError(`${subject} has no option ${describeValue(name)}`);
  }
  for (const name of Object.keys(rules) as (keyof O & string)[]) {
    const value = options[name];
    if (value === undefined && !required.includes(name)) continue;
    const expected = rules[name](value);
    // a credential may stand where a list of them should
    const shownValue = secret.includes(name) ? "" : `, not ${describeValue(value)}`;
    if (expected !== null) throw new TypeError(`${prefix}${name} must be ${expected}${shownValue}`);
  }
}

/** The longest time that a timer can wait. */
const MAX_TIMER_MS = 2 ** 31 - 1;

/** A whole number of milliseconds within bounds that a timer can keep. */
export const millisecondsRule =
  (min = 1, max: number = MAX_TIMER_MS): ((value: unknown) => string | null) =>
  (value) =>
    isIntegerBetween(value, min, max) ? null : `a whole number of milliseconds from ${min} to ${max}`;
/** true or false. */
export const booleanRule = (value: unknown): string | null => (typeof value === "boolean" ? null : "true or false");
/** A function. */
export const functionRule = (value: unknown): string | null => (typeof value === "function" ? null : "a function");
/** A string. */
export const stringRule = (value: unknown): string | null => (typeof value === "string" ? null : "a text");
/** A Clock, known by its timer(). */
export const clockRule = (value: unknown): string | null => (isObject(value) && "timer" in value ? null : "a clock");

/** Whatever checked it has not thrown. */
export function noProblem(_checked: unknown): null {
  return null;
}

/** An object that is no array. */
export function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** A whole number from `min` to `max`. */
export function isIntegerBetween(value: unknown, min: number, max: number): boolean {
  return typeof value === "number" && Number.isInteger(value) && value >= min && value <= max;
}
