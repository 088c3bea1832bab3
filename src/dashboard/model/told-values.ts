/** What a field has told to its view, and has not got back yet: the view returns each value a moment later. */

/**
 * What is still to come after this value has come back; null: the field did not tell it, as after the back button.
 * Values that were told before it do not come any more.
 */
export function awaitFurther(told: readonly string[], value: string): readonly string[] | null {
  const index = told.lastIndexOf(value);
  return index === -1 ? null : told.slice(index + 1);
}
