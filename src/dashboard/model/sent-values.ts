/** The values that a field has sent to its view and has not received back yet: the view returns each value a moment later. */

/**
 * What is still to come after this value has come back; null: the field did not send it, as after the back button.
 * Values that were sent before it do not come any more.
 */
export function awaitFurther(sent: readonly string[], value: string): readonly string[] | null {
  const index = sent.lastIndexOf(value);
  return index === -1 ? null : sent.slice(index + 1);
}
