// The data of a recorded episode for the viewer's scripts, which read it by name.
"use strict";

const episode = getJson(`../v1/trajectories/${location.pathname.split("/").pop()}`);

/** Return the data with that name, as in `page.js`, but from the server. */
async function pageData(name) {
  return (await episode)[name];
}
