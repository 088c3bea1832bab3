/** One figure with its name. */

interface FigureProps {
  readonly title: string;
  readonly value: string;
}

export function Figure({ title, value }: FigureProps) {
  return (
    <div class="tile">
      <dt>{title}</dt>
      <dd>{value}</dd>
    </div>
  );
}
