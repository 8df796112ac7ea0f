// A click on an image of the grid asks for it alone.
export function startViewer() {
  const grid = document.getElementById("viewer");
  if (!grid) return;
  grid.classList.add("clickable");
  grid.addEventListener("click", (event) => {
    const columns = Number(grid.dataset.columns);
    const box = grid.getBoundingClientRect();
    const [column, row] = [(event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height].map((part) =>
      Math.min(columns - 1, Math.floor(part * columns)),
    );
    const number = row * columns + column + 1;
    // The last page may have empty places.
    if (number > Number(grid.dataset.count)) return;
    const form = document.getElementById("enlarge");
    form.elements.image.value = number;
    form.requestSubmit();
  });
}
