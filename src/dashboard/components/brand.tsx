/** The name of the product, with its picture. */

export function Brand() {
  return (
    <span class="brand">
      <img src="/ui/assets/favicon.svg" alt="" width="20" height="20" />
      <span class="brand-name">Holdfast</span>
    </span>
  );
}
