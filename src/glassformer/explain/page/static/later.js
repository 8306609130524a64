import{b as s,c as a,h as e,i as o,n as r}from"./screens.js";import"./shared.js";export{s as attention,a as compare,e as decode,o as step,r as why};
