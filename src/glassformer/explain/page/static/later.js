import{m as s,w as a,z as e}from"./screens.js";import"./shared.js";export{s as attention,a as decode,e as step};
