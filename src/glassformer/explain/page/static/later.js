import{d as s,e as a,j as e,k as o,p as r}from"./screens.js";import"./shared.js";export{s as attention,a as compare,e as decode,o as step,r as why};
