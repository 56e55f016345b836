// The data of a recorded episode for the viewer's scripts, which read it by name.
"use strict";

const episode = getJson(`/v1/trajectories/${location.pathname.split("/").pop()}`);

/** As in `page.js`, from the server instead of the file. */
async function pageData(name) {
  return (await episode)[name];
}
