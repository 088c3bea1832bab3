/** Validates options and arguments at the API. Callers may use JavaScript, and a mistyped option must not be ignored. */

import { describeValue, MAX_TIMEOUT_MS, parseDuration } from "./duration.ts";

/** Returns what the value must be, or null if it is valid. A rule may also throw a TypeError itself. */
type OptionRule = (value: unknown) => string | null;

/** One rule per option. */
export type OptionRules<O> = { readonly [Name in keyof O]-?: OptionRule };

interface RuleOptions<O> {
  readonly required?: readonly (keyof O)[];
  readonly secret?: readonly (keyof O)[];
  readonly prefix?: string;
}

/**
 * @param subject the name of the driver or function in messages
 * @param required options without a default
 * @param secret options whose values must not be shown
 * @param prefix precedes the names in messages, for options inside another option
 * @throws TypeError naming the option that is wrong, missing or unknown
 */
export function validateOptions<O extends object>(
  subject: string,
  options: O,
  rules: OptionRules<O>,
  { required = [], secret = [], prefix = "" }: RuleOptions<O> = {},
): void {
  requireObject(options, subject);
  for (const name of Object.keys(options)) {
    if (!Object.hasOwn(rules, name)) throw new TypeError(`${subject} has no option ${describeValue(name)}`);
  }
  for (const name of Object.keys(rules) as (keyof O & string)[]) {
    const value = options[name];
    if (value === undefined && !required.includes(name)) continue;
    // a secret option's value may be a credential even if it has the wrong type
    requireValid(value, prefix + name, rules[name], secret.includes(name));
  }
}

/** @throws TypeError naming the driver or function whose options are wrong */
export function requireObject(options: unknown, subject: string): void {
  if (!isObject(options)) throw new TypeError(`options of ${subject} must be an object, not ${describeValue(options)}`);
}

/** @throws TypeError naming the argument */
export function requireValid(value: unknown, name: string, rule: OptionRule, isSecret = false): void {
  const expected = rule(value);
  if (expected === null) return;
  throw new TypeError(`${name} must be ${expected}${isSecret ? "" : `, not ${describeValue(value)}`}`);
}

/** A whole number of milliseconds within the bounds, by default those of a timer. */
export const millisecondsRule =
  (min = 1, max: number = MAX_TIMEOUT_MS): OptionRule =>
  (value) =>
    isIntegerBetween(value, min, max) ? null : `a whole number of milliseconds from ${min} to ${max}`;
/** A Duration that is not longer than that of a timer. @param name of the option */
export const timeoutRule =
  (name: string): OptionRule =>
  (value) =>
    parseDuration(value, name, 1) <= MAX_TIMEOUT_MS ? null : "at most 24 days";
/** A count from 1 on. */
export const countRule =
  (max: number): OptionRule =>
  (value) =>
    isIntegerBetween(value, 1, max) ? null : `a whole number from 1 to ${max}`;
/** true or false. */
export const booleanRule = (value: unknown): string | null => (typeof value === "boolean" ? null : "true or false");
/** A function. */
export const functionRule = (value: unknown): string | null => (typeof value === "function" ? null : "a function");
/** A string. */
export const stringRule = (value: unknown): string | null => (typeof value === "string" ? null : "a string");
/** A Clock, recognized by its timer(). */
export const clockRule = (value: unknown): string | null =>
  isObject(value) && typeof value.timer === "function" ? null : "a clock";
/** What a Locks must be. */
export const LOCKS = "what connect() or createLocks() returns";
/** A Locks, recognized by its mutex(). */
export const locksRule = (value: unknown): string | null =>
  isObject(value) && typeof value.mutex === "function" ? null : LOCKS;
/** A Driver, recognized by its claim(). */
export const driverRule = (value: unknown): string | null =>
  isObject(value) && typeof value.claim === "function" ? null : "a driver";

/** For a rule whose check throws by itself. */
export function noProblem(_checked: unknown): null {
  return null;
}

/** Is the value an object, and not an array? */
export function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** Is the value an integer from `min` to `max`? */
export function isIntegerBetween(value: unknown, min: number, max: number): boolean {
  return typeof value === "number" && Number.isInteger(value) && value >= min && value <= max;
}
