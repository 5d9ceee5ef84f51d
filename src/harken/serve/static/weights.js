/** Matrices of attention weights: {values: Float32Array [rows * columns], rows, columns}. */

/** Return the weights of one query. */
export function rowOf(matrix, row) {
  return matrix.values.subarray(row * matrix.columns, (row + 1) * matrix.columns);
}

/** Return the index of the largest value. */
export function argmax(values) {
  let best = 0;
  for (let index = 1; index < values.length; index++) if (values[index] > values[best]) best = index;
  return best;
}

/**
 * Merge tokens into groups (lists of indices): the mean over the queries of a group, the sum over its keys.
 * Rows that sum to 1 still do if every key is in a group.
 */
export function merge(matrix, rowGroups, columnGroups) {
  const values = new Float32Array(rowGroups.length * columnGroups.length);
  rowGroups.forEach((rows, row) => {
    columnGroups.forEach((columns, column) => {
      let sum = 0;
      for (const i of rows) for (const j of columns) sum += matrix.values[i * matrix.columns + j];
      values[row * columnGroups.length + column] = sum / rows.length;
    });
  });
  return { values, rows: rowGroups.length, columns: columnGroups.length };
}

/** Reduce to at most `maxRows` and `maxColumns` by the maximum of each block; a mean would hide single large weights. */
export function maxPool(matrix, maxRows, maxColumns) {
  const [height, width] = [Math.ceil(matrix.rows / maxRows), Math.ceil(matrix.columns / maxColumns)];
  if (height <= 1 && width <= 1) return matrix;
  const [rows, columns] = [Math.ceil(matrix.rows / height), Math.ceil(matrix.columns / width)];
  const values = new Float32Array(rows * columns);
  for (let i = 0; i < matrix.rows; i++) {
    const start = Math.floor(i / height) * columns;
    for (let j = 0; j < matrix.columns; j++) {
      const index = start + Math.floor(j / width);
      values[index] = Math.max(values[index], matrix.values[i * matrix.columns + j]);
    }
  }
  return { values, rows, columns };
}
